package cli

import (
	"context"

	"github.com/countersign/countersign/internal/web/api"
)

type replayCommand struct {
	Run string `arg:"" id:"run" help:"The run."`
}

func (c *replayCommand) run(ctx context.Context, p *program) error {
	return p.withReadSession(ctx, func(s *session) error {
		if s == nil {
			return p.noStoreError()
		}
		found, err := callAPI(ctx, s, func(cl *api.Client) (api.Replay, error) { return cl.Replay(ctx, c.Run) })
		if err != nil {
			return err
		}
		for _, d := range found.Differences {
			p.printText("%s: got %s, want %s", line(d.Path), line(d.Got), line(d.Want))
		}
		if err := p.printJSON(found); err != nil {
			return err
		}
		if n := len(found.Differences); n > 0 {
			p.logLine("replay of run %s: %d entries, %d differences", found.Run, found.Entries, n)
			return exitCode(exitFailed)
		}
		p.printText("replay of run %s: %d entries, no difference", found.Run, found.Entries)
		return nil
	})
}
