package cli

import (
	"context"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/api"
)

// listRepairs lists what the sweep repaired.
func listRepairs(ctx context.Context, p *program) error {
	return p.withReadSession(ctx, func(s *session) error {
		all, err := listAll(ctx, s, func(c *api.Client, cursor string) (api.Page[runtime.Repaired], error) {
			return c.Repairs(ctx, cursor, pageSize)
		})
		if err != nil {
			return err
		}
		for _, r := range all {
			p.printText("%s  %-11s  run %s at entry %d  %s", p.stamp(r.At), r.Kind, r.Run, r.Seq, line(r.Of))
		}
		if len(all) == 0 {
			p.printText("nothing was repaired")
		}
		return p.printJSON(api.Page[runtime.Repaired]{Items: all})
	})
}
