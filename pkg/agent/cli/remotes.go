package cli

import "github.com/countersign/countersign/pkg/agent/runtime"

// remotes run the calls of tools that are somewhere else, by kind. A kind that is missing here cannot be called on a laptop.
func (p *program) remotes() runtime.Remotes {
	return runtime.Remotes{}
}
