package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The use of shared budgets is counted under T#tenant#SPENT#agent, without an agent for all runs of the tenant. Each
// period has a few items (store.Shard), so that concurrent commits seldom conflict. Each entry adds its use in its own
// transaction; a lost reply, which has no entry, has an item of its own. So has each raise, whose key says what was
// raised before.
const (
	attrTokens       = "tokens"
	attrUSD          = "usd"
	attrRaisedTokens = "raisedTokens"
	attrRaisedUSD    = "raisedUsd"
)

// sharedBudget is a budget and the key under which it is counted.
type sharedBudget struct {
	pk string
	policy.SharedBudget
}

// read adds what was used and raised in the period that contains at.
func (b *sharedBudget) read(ctx context.Context, table store.Table, at time.Time) error {
	period := b.Budget.Every.Of(at)
	page, err := table.Query(ctx, store.Range{PK: b.pk, From: period + "#", To: period + "#~"})
	if err != nil {
		return fmt.Errorf("read what %s used: %w", b.Runs, err)
	}
	for _, it := range page.Items {
		b.Used.Tokens += it.Attrs[attrTokens].Int()
		b.Used.USD += run.USD(it.Attrs[attrUSD].Int())
		b.Raised.Tokens += it.Attrs[attrRaisedTokens].Int()
		b.Raised.USD += run.USD(it.Attrs[attrRaisedUSD].Int())
	}
	return nil
}

// sharedBudgets returns the budgets that a run shares with others, with nothing counted yet.
func (p Ports) sharedBudgets(s *run.AgentState, def *agent.Definition) (all []sharedBudget) {
	add := func(agentName, tool, runs string, b agent.PeriodBudget) {
		pk := "T#" + s.Tenant + "#SPENT#" + agentName
		all = append(all, sharedBudget{pk, policy.SharedBudget{Tool: tool, Runs: runs, Budget: b}})
	}
	if def != nil && def.Limits.Period != nil {
		add(s.Agent, run.ToolAgentBudget, "all runs of agent "+s.Agent, *def.Limits.Period)
	}
	if p.TenantBudget.Every != "" {
		add("", run.ToolTenantBudget, "all runs of the tenant", p.TenantBudget)
	}
	return all
}

// spendOps returns the writes that add the draft's use, and the raises granted in it, to the run's shared budgets. Of
// the raises that several runs were granted for one exhaustion, one counts. The error of the others is
// store.ErrGuardFailed.
func (p Ports) spendOps(ctx context.Context, d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	ops := p.useOps(d, def)
	for _, e := range d.Entry.Events {
		e, _ := e.(run.CallFinished)
		c, _ := d.State.Call(e.Call)
		if e.IsError || !run.IsSharedBudgetTool(c.Tool) {
			continue
		}
		b, needed, err := p.readBudgetOf(ctx, &d.State, def, c.Tool, d.Entry.Time)
		if err == nil && !needed {
			err = fmt.Errorf("raise the budget of %s: %w", b.Runs, store.ErrGuardFailed)
		}
		if err != nil {
			return nil, err
		}
		raise, _ := run.ReadRaise(c.Input) // the machine has parsed it already
		sums := map[string]store.Value{attrRaisedTokens: store.Num(raise.Tokens)}
		if raise.USD != nil {
			sums[attrRaisedUSD] = store.Num(int64(*raise.USD))
		}
		sk := fmt.Sprintf("%s#raised#%d#%d", b.Budget.Every.Of(d.Entry.Time), b.Raised.Tokens, b.Raised.USD)
		item := store.Item{Key: store.Key{PK: b.pk, SK: sk}, Attrs: sums}
		ops = append(ops, store.Op{Kind: store.Put, Item: item, If: []store.Cond{{Op: store.ItemAbsent}}})
	}
	return ops, nil
}

// useOf returns the draft's use. Delegated runs count their own.
func useOf(d *run.Draft) policy.Spending {
	u := policy.Spending{Tokens: d.State.Usage.Total() - d.Before.Usage.Total(), USD: d.State.Cost - d.Before.Cost}
	for _, e := range d.Entry.Events {
		e, _ := e.(run.Answered)
		if _, counted := d.Before.ChildOf(e.Call); counted && e.Used != nil {
			u.Tokens, u.USD = u.Tokens-e.Used.Usage.Total(), u.USD-e.Used.Cost
		}
	}
	return u
}

// useOps returns the writes that add the draft's use to the run's shared budgets.
func (p Ports) useOps(d *run.Draft, def *agent.Definition) (ops []store.Op) {
	u := useOf(d)
	if u == (policy.Spending{}) {
		return nil
	}
	sums := map[string]store.Value{attrTokens: store.Num(u.Tokens), attrUSD: store.Num(int64(u.USD))}
	for _, b := range p.sharedBudgets(&d.State, def) {
		sk := store.Shard(b.Budget.Every.Of(d.Entry.Time), d.State.Run)
		ops = append(ops, store.Op{Kind: store.Add, Item: store.Item{Key: store.Key{PK: b.pk, SK: sk}, Attrs: sums}})
	}
	return ops
}

// countLost adds the use of a paid reply that lost its entry to the run's shared budgets. Its items have keys of their
// own, so that a repeated write counts once.
func (a *attempt) countLost(ctx context.Context) error {
	d := a.paid.draft
	ops := a.useOps(d, a.def)
	for i := range ops {
		ops[i].Kind = store.Put
		ops[i].Item.SK += fmt.Sprintf("#lost#%d#%s", d.Entry.Seq, a.inv.Writer)
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := withReloads(ctx, func() (any, error) { return nil, a.Table.Write(ctx, ops...) })
	return err
}

// applySharedBudgets reports whether a shared budget of a run that needs a model is used up. It then adds the
// consequence to the draft: the run asks people, ends, or waits for decisions about its open calls.
//
// A run with open calls (wait: all_suspended) cannot ask, because the asking call must be the only open one. A raise
// does not wake such a run. It reads the budget again when one of its calls is decided, answered or expires.
func (a *attempt) applySharedBudgets(ctx context.Context) (bool, error) {
	d := a.draft
	u := useOf(d) // the draft's own use, of notes that a model has just written
	for _, b := range a.sharedBudgets(&d.State, a.def) {
		if err := b.read(ctx, a.Table, d.Entry.Time); err != nil {
			return false, err
		}
		b.Used.Tokens, b.Used.USD = b.Used.Tokens+u.Tokens, b.Used.USD.Add(u.USD)
		ask, end, exhausted := b.Exhausted(a.def, &d.State)
		switch {
		case !exhausted:
		case d.State.OpenCall() != nil:
			return true, a.phases.park(ctx, d)
		case ask.Call != "":
			return true, d.Add(ask)
		default:
			return true, a.phases.end(ctx, d, end)
		}
	}
	return false, nil
}

// VoidBudgetRequests voids a tenant's pending requests for more of a shared budget that is available again: people have
// raised it for another run, or a new period has begun. An error does not stop the others.
func (sw *Sweeper) VoidBudgetRequests(ctx context.Context, tenant string) (failed error) {
	for cursor := ""; ; {
		pending, next, err := approval.List(ctx, sw.Table, tenant, approval.Query{Status: approval.Pending, Cursor: cursor})
		failed = errors.Join(failed, err)
		for _, a := range pending {
			failed = errors.Join(failed, sw.voidBudgetRequest(ctx, a))
		}
		if cursor = next; cursor == "" || ctx.Err() != nil {
			return failed
		}
	}
}

// voidBudgetRequest voids a request for more of a shared budget that is available again. It ignores any other request.
func (sw *Sweeper) voidBudgetRequest(ctx context.Context, a approval.Approval) error {
	i := slices.IndexFunc(a.Tools, run.IsSharedBudgetTool)
	if i < 0 {
		return nil
	}
	l, err := sw.Journal.Load(ctx, a.Tenant, a.Run)
	if err != nil {
		return fmt.Errorf("void approval %s: %w", a.ID, err)
	}
	def, err := sw.Definitions(ctx, a.Tenant, l.State.Definition)
	if err != nil {
		return fmt.Errorf("void approval %s: %w", a.ID, err)
	}
	_, needed, err := sw.readBudgetOf(ctx, &l.State, def, a.Tools[i], sw.Clock.Now())
	if needed || err != nil {
		return err
	}
	return sw.Void(ctx, a)
}

// readBudgetOf returns the shared budget that a tool raises, zero if there is none, and whether a raise is needed. A
// run's own budget needs it until people raise it.
func (p Ports) readBudgetOf(
	ctx context.Context, s *run.AgentState, def *agent.Definition, tool string, at time.Time,
) (b sharedBudget, needed bool, err error) {
	for _, b := range p.sharedBudgets(s, def) {
		if b.Tool == tool {
			err = b.read(ctx, p.Table, at)
			_, _, needed = b.Exhausted(def, s)
			return b, needed, err
		}
	}
	return sharedBudget{}, !run.IsSharedBudgetTool(tool), nil
}
