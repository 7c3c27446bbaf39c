package agentfile

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// delegate is what an entry of kind agent is laid over. Asking another agent is repeatable: the same call is the same
// run, whose own calls pass its own gate.
func delegate(f field) (agent.ToolSpec, bool) {
	kind, ok := f.member("kind")
	if !ok || kind.kind != kindString || kind.node.text != string(agent.KindAgent) {
		return agent.ToolSpec{}, false
	}
	return agent.ToolSpec{Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: policy.DelegateSchema, Agent: &agent.Delegate{}}, true
}

// delegateKeys are the keys of a tool that is another agent.
func (r *reader) delegateKeys(readers map[string]read, t *agent.ToolSpec) {
	of := func(key func(d *agent.Delegate) read) read {
		return func(f field) {
			if f.kind == kindSchema {
				key(&agent.Delegate{})(f)
				return
			}
			if t.Agent == nil {
				r.add(f.path, "got a value, want none: only kind agent has it")
				return
			}
			key(t.Agent)(f)
		}
	}
	readers["agent"] = of(func(d *agent.Delegate) read { return r.text(&d.Agent) })
	readers["history"] = of(func(d *agent.Delegate) read { return r.boolean(&d.History) })
	readers["budget"] = of(func(d *agent.Delegate) read {
		return r.keys(map[string]read{"tokens": r.count(&d.Tokens), "usd": r.usd(&d.USD)})
	})
}
