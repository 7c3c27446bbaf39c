package runtime

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// What many runs use together is counted under T#tenant#SPENT#agent, without an agent for all runs of the tenant: for
// each period in a few items, so that runs that commit at the same time seldom meet. Each entry adds what it used in
// its own transaction.
const (
	spentShards = 8

	attrTokens       = "tokens"
	attrUSD          = "usd"
	attrRaisedTokens = "raisedTokens"
	attrRaisedUSD    = "raisedUsd"
)

func spentPK(tenant, agentName string) string { return "T#" + tenant + "#SPENT#" + agentName }

// sharedBudget is a budget and where it is counted.
type sharedBudget struct {
	pk string
	policy.SharedBudget
}

// sharedBudgets are the budgets that a run has in common with others, with nothing used of them.
func (p Ports) sharedBudgets(s *run.AgentState, def *agent.Definition) (all []sharedBudget) {
	add := func(agentName, tool, runs string, b agent.PeriodBudget) {
		all = append(all, sharedBudget{spentPK(s.Tenant, agentName), policy.SharedBudget{Tool: tool, Runs: runs, Budget: b}})
	}
	if def != nil && def.Limits.Period != nil {
		add(s.Agent, run.ToolAgentBudget, "all runs of agent "+s.Agent, *def.Limits.Period)
	}
	if p.TenantBudget.Every != "" {
		add("", run.ToolTenantBudget, "all runs of the tenant", p.TenantBudget)
	}
	return all
}

// spendOps add what the draft used, and what people have granted in it, to the run's shared budgets.
func (p Ports) spendOps(d *run.Draft, def *agent.Definition) []store.Op {
	budgets := p.sharedBudgets(&d.State, def)
	if len(budgets) == 0 {
		return nil
	}
	used := policy.Spending{
		Tokens: d.State.Usage.Total() - d.Before.Usage.Total(), USD: d.State.Cost - d.Before.Cost,
	}
	raised := map[string]run.Raise{} // by tool
	for _, e := range d.Entry.Events {
		switch e := e.(type) {
		case run.Answered: // what other runs have used is counted by them
			if e.Used != nil {
				used.Tokens -= e.Used.Usage.Total()
				used.USD -= e.Used.Cost
			}
		case run.CallFinished:
			if c, ok := d.State.Call(e.Call); ok && c.Budget && !e.IsError {
				raised[c.Tool], _ = run.ReadRaise(c.Input) // which the machine has read
			}
		}
	}
	var ops []store.Op
	for _, b := range budgets {
		sums := map[string]store.Value{}
		add := func(name string, n int64) {
			if n != 0 {
				sums[name] = store.Num(n)
			}
		}
		add(attrTokens, used.Tokens)
		add(attrUSD, int64(used.USD))
		add(attrRaisedTokens, raised[b.Tool].Tokens)
		if usd := raised[b.Tool].USD; usd != nil {
			add(attrRaisedUSD, int64(*usd))
		}
		if len(sums) > 0 {
			shard := d.State.Run[len(d.State.Run)-1] % spentShards
			sk := fmt.Sprintf("%s#%d", b.Budget.Every.Of(d.Entry.Time), shard)
			ops = append(ops, store.Op{Kind: store.Add, Item: store.Item{Key: store.Key{PK: b.pk, SK: sk}, Attrs: sums}})
		}
	}
	return ops
}

// meetSharedBudgets adds to the draft what becomes of a run that needs a model while a budget it shares is used up, and
// reports whether one is: it asks people, ends, or waits for those who decide about its open calls. What other runs use
// meanwhile is not foreseen.
func (a *attempt) meetSharedBudgets(ctx context.Context) (bool, error) {
	d := a.draft
	for _, b := range a.sharedBudgets(&d.State, a.def) {
		period := b.Budget.Every.Of(d.Entry.Time)
		page, err := a.Table.Query(ctx, store.Range{PK: b.pk, From: period + "#", To: period + "#~"})
		if err != nil {
			return false, fmt.Errorf("read what %s used: %w", b.Runs, err)
		}
		for _, it := range page.Items {
			b.Used.Tokens += it.Attrs[attrTokens].Int()
			b.Used.USD += run.USD(it.Attrs[attrUSD].Int())
			b.Raised.Tokens += it.Attrs[attrRaisedTokens].Int()
			b.Raised.USD += run.USD(it.Attrs[attrRaisedUSD].Int())
		}
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
