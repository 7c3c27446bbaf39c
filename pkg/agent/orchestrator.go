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

// Prefilter offers a request only the tools that fit what it is about. The zero value offers all.
type Prefilter struct {
	TopK int `json:"topK,omitempty"`
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

func (c *checker) orchestrator(at string, o Orchestrator, p Prefilter) {
	for _, n := range []struct {
		key string
		got int
	}{{"topK", o.TopK}, {"maxSteps", o.MaxSteps}, {"retries", o.Retries}} {
		c.that(n.got >= 0 && (n.got > 0 || !o.Enabled), at+"."+n.key, fmt.Sprintf("got %d, want more than zero", n.got))
	}
	for key, m := range map[string]*ModelSpec{"planner": o.Planner, "router": o.Router} {
		if m != nil {
			c.modelSettings(at+"."+key, *m)
			c.that(len(m.Fallbacks) == 0, at+"."+key+".fallbacks", "got a list, want none: where it fails, the loop takes over")
			c.that(m.StaticText == "", at+"."+key+".staticText", "got a text, want none: where it fails, the loop takes over")
		}
	}
	c.that(p.TopK >= 0, "prefilter.topK", fmt.Sprintf("got %d, want zero or more", p.TopK))
}
