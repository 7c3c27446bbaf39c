package agent

import "fmt"

// Orchestrator plans a run's work with one model and carries out its steps with another before the loop begins (seed 002, ADR-009 there).
// The zero value does not.
type Orchestrator struct {
	Enabled  bool       `json:"enabled,omitempty"`
	Planner  *ModelSpec `json:"planner,omitempty"`  // nil = the agent's own model
	Router   *ModelSpec `json:"router,omitempty"`   // nil = the agent's own model
	TopK     int        `json:"topK,omitempty"`     // tools a step is offered
	MaxSteps int        `json:"maxSteps,omitempty"` // of a plan
	Retries  int        `json:"retries,omitempty"`  // attempts of a step to get a tool call
}

func defaultOrchestrator() Orchestrator { return Orchestrator{TopK: 15, MaxSteps: 10, Retries: 3} }

// or is o with q's numbers where it has none.
func (o Orchestrator) or(q Orchestrator) Orchestrator {
	if o.TopK == 0 {
		o.TopK = q.TopK
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = q.MaxSteps
	}
	if o.Retries == 0 {
		o.Retries = q.Retries
	}
	return o
}

// planModel is a model of a plan, by its key.
type planModel struct {
	key  string
	spec *ModelSpec
}

// models are those that are not the agent's own.
func (o Orchestrator) models() (own []planModel) {
	for _, m := range []planModel{{"planner", o.Planner}, {"router", o.Router}} {
		if m.spec != nil {
			own = append(own, m)
		}
	}
	return own
}

func (c *checker) orchestrator(at string, d *Definition) {
	o := d.Orchestrator
	for _, n := range []struct {
		key string
		got int
	}{{"topK", o.TopK}, {"maxSteps", o.MaxSteps}, {"retries", o.Retries}} {
		c.that(n.got >= 0 && (n.got > 0 || !o.Enabled), at+"."+n.key, fmt.Sprintf("got %d, want more than zero", n.got))
	}
	for _, m := range o.models() {
		path := at + "." + m.key
		c.modelSettings(path, *m.spec)
		c.that(len(m.spec.Fallbacks) == 0, path+".fallbacks", "got a list, want none: where it fails, the loop takes over")
		c.that(m.spec.StaticText == "", path+".staticText", "got a text, want none: where it fails, the loop takes over")
		c.that(d.Limits.USD == 0 || m.spec.Price != nil, path+".price", "got nothing, want what the model costs: limits.usd is set")
	}
	c.that(!o.Enabled || d.Output.Format != OutputJSON, at+".enabled", "got true, want false: the answer that a plan ends with is text, and output.format is json")
}
