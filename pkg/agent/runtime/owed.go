package runtime

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// An end that is committed by no execution may be told by nobody, should whoever commits it die. So an end that somebody waits for has a
// record in its transaction, under PK T#tenant#END#run, SK "E", which is listed until the end is told.

func owedKey(tenant, run string) store.Key {
	return store.Key{PK: "T#" + tenant + "#END#" + run, SK: "E"}
}

func owedIndex(tenant string) string { return "T#" + tenant + "#ENDS" }

// commitOutside commits an end that no execution commits.
func (p Ports) commitOutside(ctx context.Context, before agent.AgentState, d *agent.Draft, def *agent.Definition) error {
	after := d.State
	_, owed, err := agent.Announcement(&after)
	if err != nil {
		return err
	}
	if !owed || p.Emit == nil {
		return p.commit(ctx, before, d, def)
	}
	return p.commit(ctx, before, d, def, store.Op{Kind: store.Put, Item: store.Item{
		Key: owedKey(after.Tenant, after.Run), Index: owedIndex(after.Tenant), IndexSort: after.Run,
		Attrs: map[string]store.Value{"at": store.Num(d.Entry.Time.UnixMilli())},
	}})
}

// tellOutside tells of an end that no execution has committed, and takes it off the list.
func (p Ports) tellOutside(ctx context.Context, s *agent.AgentState) error {
	if err := p.tell(ctx, s); err != nil {
		return err
	}
	_, owed, err := agent.Announcement(s)
	if err != nil || !owed || p.Emit == nil {
		return err
	}
	if err := p.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: owedKey(s.Tenant, s.Run)}}); err != nil {
		return fmt.Errorf("note that the end of run %s is told: %w", s.Run, err)
	}
	return nil
}

// ends tells of the ends on a page of those that nobody has told, less those of the last minute.
func (p *pass) ends(ctx context.Context) (next string, err error) {
	page, err := p.Sweeper.Table.Query(ctx, store.Range{PK: owedIndex(p.at.Tenant), Index: true, Limit: sweepPage, Cursor: p.at.Cursor})
	if err != nil {
		return "", fmt.Errorf("list ends that are owed: %w", err)
	}
	for _, it := range page.Items {
		if p.Sweeper.Clock.Now().UnixMilli()-it.Attrs["at"].Int() < settling.Milliseconds() {
			continue
		}
		r, err := p.Sweeper.tellEnd(ctx, p.at.Tenant, it.IndexSort)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err := p.note(FailedRepair{Tenant: p.at.Tenant, Run: it.IndexSort, Err: err}, r); err != nil {
			return "", err
		}
	}
	return page.Cursor, nil
}

// tellEnd tells of an end that is owed.
func (sw *Sweeper) tellEnd(ctx context.Context, tenant, run string) (Repair, error) {
	l, err := sw.Journal.Load(ctx, tenant, run)
	if err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	if err := sw.tellOutside(ctx, &l.State); err != nil {
		return RepairNone, fmt.Errorf("sweep run %s: %w", run, err)
	}
	return RepairTold, nil
}
