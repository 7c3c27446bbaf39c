package lambdafn

import (
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/lambdatool"
)

// add gives functions/tool what carries out the calls of tools that are somewhere else: functions here, and the others by what its main hands
// in; watch watches them. It stands apart so that no other function links any of it.
func (others Remotes) add(
	cfg aws.Config, getenv func(string) string, watch *Observer, p *runtime.Ports,
) error {
	var err error
	if p.Callbacks, err = callbacks(getenv); err != nil {
		return err
	}
	p.Functions = lambdatool.New(cfg)
	p.Remotes = runtime.Remotes{}
	if others != nil {
		if p.Remotes, err = others(cfg, getenv); err != nil {
			return err
		}
	}
	p.Remotes[agent.KindLambda] = lambdatool.Remote{Functions: p.Functions}
	p.Remotes = watch.Remotes(p.Remotes)
	return nil
}
