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
	return p.looking(ctx, func(s *session) error {
		all, err := s.repairs(ctx)
		if err != nil {
			return err
		}
		for _, r := range all {
			p.tell("%s  %-11s  run %s at entry %d  %s", stamp(r.At), r.Kind, r.Run, r.Seq, line(r.Of))
		}
		if len(all) == 0 {
			p.tell("nothing was repaired")
		}
		return p.answer(api.RepairPage{Repairs: all})
	})
}

// repairs lists all repairs; of no session, none.
func (s *session) repairs(ctx context.Context) ([]runtime.Repaired, error) {
	all, cursor := []runtime.Repaired{}, ""
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.RepairPage, error) { return c.Repairs(ctx, cursor, listPage) })
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
