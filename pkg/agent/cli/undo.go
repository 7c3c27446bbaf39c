package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/web/api"
)

// undoCommand starts a run that undoes a call, and follows that run.
type undoCommand struct {
	Run  string `arg:"" id:"run" help:"The run, which has ended."`
	Call string `arg:"" id:"call" help:"The call to take back (show RUN lists what would)."`
}

func (c *undoCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, func(s *session) error {
		return s.startAndFollow(ctx, func(ctx context.Context, cl *api.Client) (api.Accepted, error) {
			u, err := cl.Undo(ctx, c.Run, c.Call)
			if err == nil && u.Already {
				p.logLine("call %s of run %s: somebody has asked to take it back before, in run %s", line(c.Call),
					c.Run, u.ID)
			}
			return api.Accepted{ID: u.ID, Status: u.Status, Links: u.Links}, err
		}, s.terminalDecider())
	})
}

// formatUndo returns what would undo a call, or the result of its undo.
func (p *program) formatUndo(run string, c api.Call) string {
	u := c.Undo
	switch {
	case u.Reason != "":
		return fmt.Sprintf("%s: %s", c.ID, line(u.Reason))
	case u.Run != "":
		return fmt.Sprintf("%s: by run %s, %s", c.ID, u.Run, strings.TrimSpace(string(u.Status)+" "+string(u.Ended)))
	default:
		return fmt.Sprintf("%s: %s %s, with %s", c.ID, line(u.Tool), show.OneLine(u.Input, nil), p.commandLine("undo",
			run, c.ID))
	}
}
