package cli

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/web/api"
)

// forkCommand starts a run from the state of another run after one of its entries, and follows the new run.
type forkCommand struct {
	Run   string `arg:"" id:"run" help:"The run to branch off."`
	At    *int64 `placeholder:"SEQ" help:"The entry behind which the new run parts from it (events RUN lists them)."`
	Model string `placeholder:"SPEC" help:"script:FILE, openai:MODEL@URL, bedrock:ID or demo, in place of the run's."`
	Key   string `placeholder:"K" help:"Idempotency key: the same key and request give the same run."`
}

func (c *forkCommand) run(ctx context.Context, p *program) error {
	if c.At == nil || *c.At < 0 {
		return usageErrorf("fork: want --at SEQ, an entry of the run, from 0")
	}
	f := api.Fork{At: c.At, Key: c.Key}
	if f.Key == "" { // set here, so that a retry has the same key
		f.Key = ids.System(p.clock).Key()
	}
	if c.Model != "" { // checked before any store is opened
		m, err := overrideModel(agent.ModelSpec{}, c.Model)
		if err != nil {
			return err
		}
		if _, err := p.newModel(m, nil); err != nil {
			return usageErrorf("--model: %v", err)
		}
		f.Model = &api.ForkModel{Provider: m.Provider, ID: m.ID, BaseURL: m.BaseURL, File: m.File}
	}
	return p.withExistingStore(ctx, func(s *session) error {
		return s.startAndFollow(ctx, func(ctx context.Context, cl *api.Client) (api.Accepted, error) {
			return cl.Fork(ctx, c.Run, f)
		}, s.terminalDecider())
	})
}
