package lambdafn

import (
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/lambdatool"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// remotes gives functions/tool what carries out the calls of tools that are somewhere else. It stands apart so that no other function
// links any of it.
func remotes(getenv func(string) string, p *runtime.Ports) error {
	cfg, err := awsConfig(getenv)
	if err != nil {
		return err
	}
	at, err := endpointOf("Lambda", lambdatool.Endpoint, cfg, getenv)
	if err != nil {
		return err
	}
	if p.Callbacks, err = callbacks(getenv); err != nil {
		return err
	}
	p.Functions = lambdatool.New(cfg, at)
	p.Remotes = runtime.Remotes{agent.KindLambda: lambdatool.Remote{Functions: p.Functions}}
	return nil
}
