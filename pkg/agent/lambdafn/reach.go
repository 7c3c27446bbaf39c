package lambdafn

import (
	"maps"

	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// Remotes makes what carries out the calls of some kinds of tools that are somewhere else. It is handed in by the main of functions/tool,
// so that no other function links any of it; package pkg/agent/reach has them.
type Remotes func(clk clock.Clock) (runtime.Remotes, error)

// reach adds what remotes make.
func reach(p *runtime.Ports, remotes []Remotes) error {
	all := runtime.Remotes{}
	maps.Copy(all, p.Remotes)
	for _, make := range remotes {
		some, err := make(p.Clock)
		if err != nil {
			return err
		}
		maps.Copy(all, some)
	}
	p.Remotes = all
	return nil
}
