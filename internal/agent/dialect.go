package agent

import (
	"cmp"
	"fmt"
	"slices"
)

// Dialect is how calls travel between the runtime and a model.
type Dialect string

// The provider's own tool calls; or text with one call in <tool> tags (seed 004), for models that have none. "" = native.
const (
	DialectNative Dialect = "native"
	DialectXML    Dialect = "xml"
)

// XML tunes DialectXML and the loop-breaking tools.
type XML struct {
	MissingServer MissingServer `json:"missingServer,omitempty"`
	Breaker       int           `json:"breaker,omitempty"` // so many identical reminders in a row end the run; 0 = never
	Disable       []string      `json:"disable,omitempty"` // loop-breaking tools that are not offered
}

// MissingServer says what becomes of a call that names no server.
type MissingServer string

// It is malformed, or it means the server "local". "" = error.
const (
	MissingServerError MissingServer = "error"
	MissingServerLocal MissingServer = "local"
)

// LoopBreaking are the tools whose success ends a run under TextRequireTool.
var LoopBreaking = []string{"task_completion", "ask_question", "converse"}

// or is x with q's values where it has none.
func (x XML) or(q XML) XML {
	x.MissingServer = cmp.Or(x.MissingServer, q.MissingServer)
	x.Breaker = cmp.Or(x.Breaker, q.Breaker)
	return x
}

func (c *checker) dialect(d *Definition) {
	for i, m := range d.Model.Chain() {
		oneOf(c, chainPath(i)+".dialect", cmp.Or(m.Dialect, DialectNative), DialectNative, DialectXML)
	}
	oneOf(c, "xml.missingServer", cmp.Or(d.XML.MissingServer, MissingServerError), MissingServerError, MissingServerLocal)
	c.that(d.XML.Breaker >= 0, "xml.breaker", fmt.Sprintf("got %d, want zero or more", d.XML.Breaker))
	for i, name := range d.XML.Disable {
		oneOf(c, fmt.Sprintf("xml.disable[%d]", i), name, LoopBreaking...)
	}
	none := d.Text == TextRequireTool && len(d.loopBreaking()) == 0
	c.that(!none, "xml.disable", "got every tool that ends a run, want one of them left"+map[bool]string{true: ": " + toolCompletion}[d.Output.Format == OutputJSON])
	for i, r := range d.Permission.Rules {
		ends := slices.Contains(d.reserved(), r.Tool) && r.Verdict != VerdictAllow
		c.that(!ends, fmt.Sprintf("permission.rules[%d].tool", i), fmt.Sprintf("got %s, which only ends the run and is nobody's to decide about, want another tool: xml.disable takes it away", r.Tool))
	}
	for i, t := range d.Tools {
		taken := slices.Contains(d.reserved(), t.ModelName())
		c.that(!taken, fmt.Sprintf("tools[%d].name", i), fmt.Sprintf("got %s, which is %s to the model, want another name: text: require_tool has that tool of itself", t.Name, t.ModelName()))
	}
}
