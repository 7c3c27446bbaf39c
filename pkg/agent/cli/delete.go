package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

type deleteCommand struct {
	Run      string `arg:"" id:"run" help:"The run, which has ended."`
	Yes      bool   `help:"Do not ask."`
	Deployed bool   `help:"A run of a deployment (COUNTERSIGN_TABLE, COUNTERSIGN_BUCKET)."`
	Tenant   string `placeholder:"T" help:"Of a deployment: whose run (default: default)."`
}

func (c *deleteCommand) run(ctx context.Context, p *program) error {
	if c.Tenant != "" && !c.Deployed {
		return usageErrorf("--tenant: want it with --deployed: the store directory has one tenant")
	}
	if !c.Yes && !p.terminal {
		return usageErrorf("delete: nobody can be asked here: want --yes")
	}
	remove := c.deleteLocal
	if c.Deployed {
		remove = c.deleteDeployed
	}
	out, err := remove(ctx, p)
	if err != nil {
		return err
	}
	kept := ""
	if out.Kept > 0 {
		kept = fmt.Sprintf("; %s that other runs have, too, are kept", counted(out.Kept, "blob"))
	}
	switch {
	case out.Run == "":
		p.printText("nothing is deleted")
	case out.Already:
		p.printText("run %s was deleted before", out.Run)
	default:
		p.printText("deleted run %s: %s with %d journal entries, %s and %s%s", out.Run, counted(out.Runs, "run"),
			out.Entries, counted(out.Approvals, "request"), counted(out.Blobs, "blob"), kept)
	}
	return p.printJSON(out)
}

func (c *deleteCommand) deleteLocal(ctx context.Context, p *program) (out runtime.Deleted, err error) {
	err = p.withExistingStore(ctx, false, func(s *session) (err error) {
		if sure, err := c.confirm(ctx, s); !sure {
			return err
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave half of it
		out, err = callAPI(begun, s, func(cl *api.Client) (runtime.Deleted, error) { return cl.Delete(begun, c.Run) })
		return err
	})
	return out, err
}

// deleteDeployed deletes with the credentials of whoever runs the command.
func (c *deleteCommand) deleteDeployed(ctx context.Context, p *program) (out runtime.Deleted, err error) {
	table, blobs, err := p.openDeployed()
	if err != nil {
		return out, err
	}
	_, as, err := p.resolvePrincipals()
	if err != nil {
		return out, err
	}
	if sure, err := c.confirm(ctx, &session{p: p}); !sure {
		return out, err
	}
	d := runtime.Deleter{Ports: runtime.Ports{
		Table: table, Blobs: blobs, Journal: store.NewJournal(table, 0), Clock: p.clock,
	}}
	return d.Delete(ctx, cmp.Or(c.Tenant, local.Tenant), c.Run, as.ID)
}

func (c *deleteCommand) confirm(ctx context.Context, s *session) (bool, error) {
	if c.Yes {
		return true, nil
	}
	answer, err := s.promptLine(ctx, "delete run "+c.Run+", the runs below it and all that belongs to them? [y/N] ")
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", ignoreEOF(err)
}
