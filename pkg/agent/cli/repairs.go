package cli

import (
	"context"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// repairsCommand lists what was repaired.
type repairsCommand struct{}

// listPage is how many repairs are asked for at once.
const listPage = 200

func (*repairsCommand) run(ctx context.Context, p *program) error {
	return p.withReadSession(ctx, func(s *session) error {
		all, err := s.listRepairs(ctx)
		if err != nil {
			return err
		}
		for _, r := range all {
			p.printText("%s  %-11s  run %s at entry %d  %s", stamp(r.At), r.Kind, r.Run, r.Seq, line(r.Of))
		}
		if len(all) == 0 {
			p.printText("nothing was repaired")
		}
		return p.printJSON(api.RepairPage{Repairs: all})
	})
}

// listRepairs lists all repairs; of no session, none.
func (s *session) listRepairs(ctx context.Context) ([]runtime.Repaired, error) {
	all, cursor := []runtime.Repaired{}, ""
	for s != nil {
		page, err := callAPI(ctx, s, func(c *api.Client) (api.RepairPage, error) { return c.Repairs(ctx, cursor, listPage) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Repairs...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}
