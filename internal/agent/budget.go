package agent

import "fmt"

// Context says how much of the conversation a request holds. The zero value: all of it, media too.
type Context struct {
	Mask bool `json:"mask,omitempty"` // media that an inference has carried stand as text in later requests

	Window       int     `json:"window,omitempty"` // tokens that a request and its reply share; 0 = nobody counts them
	Reserve      Reserve `json:"reserve,omitzero"`
	EvictBelow   int     `json:"evictBelow,omitempty"`    // fewer tokens left than this evict
	RoundMinimum int     `json:"roundMinimum,omitempty"`  // fewer tokens left than this end the loop
	Keep         int     `json:"keep,omitempty"`          // newest messages that an eviction leaves
	Summary      int     `json:"summaryTokens,omitempty"` // of what was evicted

	SummaryBy SummaryKind `json:"summary,omitempty"` // who writes it; "" = mechanical

	TruncateResult int  `json:"truncateResult,omitempty"` // characters of a tool's result; 0 = all of them
	KeepWhole      bool `json:"keepWhole,omitempty"`      // all of a result that is cut is kept in a blob, and the model may read on in it
	CompressAfter  int  `json:"compressAfter,omitempty"`  // newest messages whose tool results stand whole, older ones are shortened in requests; 0 = all stand whole
	Prune          int  `json:"prune,omitempty"`          // tokens of the newest messages that are kept (seed 004); 0 = all are
}

// Reserve is the part of a window that is not for the conversation, in tokens.
type Reserve struct {
	System *int `json:"system,omitempty"` // nil = as much as the system text takes
	Tools  *int `json:"tools,omitempty"`  // nil = as much as the tools' definitions take
	Active int  `json:"active,omitempty"`
	Output int  `json:"output,omitempty"`
	Safety int  `json:"safety,omitempty"`
}

// SummaryKind says who writes the summary of what was evicted.
type SummaryKind string

// Mechanical is a line for each message, by rule. Model is a text that the agent's model writes, mechanical where it fails.
const (
	SummaryMechanical SummaryKind = "mechanical"
	SummaryModel      SummaryKind = "model"
)

// defaultWindow is the window's policy around its size.
func defaultWindow(tokens int, r Reserve) Context {
	return Context{Window: tokens, Reserve: r, EvictBelow: 5000, RoundMinimum: 1500, Keep: 10, Summary: 500, TruncateResult: 6000}
}

func (c *checker) context(at string, x Context) {
	for _, n := range []struct {
		key string
		got int
	}{
		{"window", x.Window}, {"reserve.active", x.Reserve.Active}, {"reserve.output", x.Reserve.Output}, {"reserve.safety", x.Reserve.Safety},
		{"evictBelow", x.EvictBelow}, {"roundMinimum", x.RoundMinimum}, {"keep", x.Keep}, {"summaryTokens", x.Summary},
		{"truncateResult", x.TruncateResult}, {"compressAfter", x.CompressAfter}, {"prune", x.Prune},
	} {
		c.that(n.got >= 0, at+"."+n.key, fmt.Sprintf("got %d, want zero or more", n.got))
	}
	switch x.SummaryBy {
	case "", SummaryMechanical, SummaryModel:
	default:
		c.add(at+".summary", fmt.Sprintf("got %q, want mechanical or model", x.SummaryBy))
	}
	for key, n := range map[string]*int{"system": x.Reserve.System, "tools": x.Reserve.Tools} {
		c.that(n == nil || *n >= 0, at+".reserve."+key, "got less than zero, want zero or more, or measured")
	}
}

// Budget is how the window is shared out for one request, in tokens. The zero value: nobody counts.
type Budget struct {
	Window    int `json:"window"`
	System    int `json:"system"`
	Tools     int `json:"tools"`
	Active    int `json:"active"`
	Output    int `json:"output"`
	Safety    int `json:"safety"`
	Messages  int `json:"messages"`
	Remaining int `json:"remaining"` // what the others leave of Window, never less than 0
}

// partition is the budget with what its terms leave.
func (b Budget) partition() Budget {
	b.Remaining = max(0, b.Window-b.System-b.Tools-b.Active-b.Output-b.Safety-b.Messages)
	return b
}

// Room is what a request had left of its window, in tokens.
type Room struct {
	Left int `json:"left"`
	Of   int `json:"of"`
}

// Room is what is stored of the budget with the reply, nil = nothing. A partition with a fixed term is arithmetic that people follow (seed 002):
// every reply has it. One that is measured is worth its bytes only where the window fills.
func (b Budget) Room(d *Definition) *Room {
	x := d.Context
	if x.Window == 0 || x.measured() && b.Remaining >= roomNear*x.EvictBelow {
		return nil
	}
	return &Room{Left: b.Remaining, Of: b.Window}
}

// roomNear times evictBelow left is near enough to the window's end to be written down.
const roomNear = 4

// measured reports whether all of the partition that a request decides is measured.
func (c Context) measured() bool { return c.Reserve.System == nil && c.Reserve.Tools == nil }

// Measured is what a run's state does not say of its next request.
type Measured struct {
	System string         // the system text, without the summary
	Bodies map[string]int // sizes of live results that are in blobs, in bytes, by digest
	Count  int64          // tokens of the whole request by a provider's count; 0 = nobody counted
}

// Counted is what a provider counted of a request: how many tokens it took, and how many messages of the conversation it held, those that had
// been evicted before it included. The zero value: no count is known.
type Counted struct {
	Tokens  int64 `json:"tokens"`
	Through int64 `json:"through"`
}

// counted is the count that comes with a reply to s.
func (s *AgentState) counted(u Usage) Counted {
	tokens := u.Input + u.CacheRead + u.CacheWrite
	if tokens <= 0 {
		return Counted{}
	}
	return Counted{Tokens: tokens, Through: s.EvictedMessages + int64(s.Messages.Len())}
}

// gauge measures the requests of one inference.
type gauge struct {
	d *Definition
	a Action
	m Measured

	off    int // what a provider counted beyond the estimate of the conversation; less than 0 where it counted less
	guess  int // tokens that nothing but an estimate is known of
	exact  bool
	budget Budget
}

// BudgetOf is the budget of the request that action a asks for.
func BudgetOf(d *Definition, s *AgentState, a Action, m Measured) Budget {
	g := newGauge(d, s, a, m)
	return g.budget
}

// newGauge reads s once, and what providers have counted of it.
func newGauge(d *Definition, s *AgentState, a Action, m Measured) gauge {
	g := gauge{d: d, a: a, m: m}
	if d.Context.Window == 0 {
		return g
	}
	g.budget = g.read(s)
	g.guess = g.budget.Messages
	if !d.Context.measured() {
		return g
	}
	around := g.budget.System + g.budget.Tools
	switch n, held := int(s.Counted.Tokens), g.estimated(s, s.Counted.Through); {
	case m.Count > 0:
		g.off, g.guess, g.exact = int(m.Count)-around-g.budget.Messages, 0, true
	case plausible(n, around+held):
		g.off, g.guess = n-around-held, g.budget.Messages-held
	}
	g.budget = g.read(s)
	return g
}

// plausible reports whether a provider's count can be one of a text that is estimated at so many tokens. No text is four times off; the
// figures of a stand-in are.
func plausible(counted, estimate int) bool {
	return counted > 0 && counted <= 4*estimate && estimate <= 4*counted
}

// read is the budget with s as it is.
func (g *gauge) read(s *AgentState) Budget {
	x := g.d.Context
	b := Budget{Window: x.Window, Active: x.Reserve.Active, Output: x.Reserve.Output, Safety: x.Reserve.Safety}
	if x.Reserve.System != nil {
		b.System = *x.Reserve.System
	} else {
		b.System = ProseTokens(len(withSummary(g.d, s, g.m.System)))
	}
	if x.Reserve.Tools != nil {
		b.Tools = *x.Reserve.Tools
	} else {
		b.Tools = toolTokens(offered(g.d, s, g.a))
	}
	b.Messages = max(0, g.estimated(s, s.EvictedMessages+int64(s.Messages.Len()))+g.off)
	return b.partition()
}

// estimated is the estimate of the conversation's live messages before number through, evicted ones counted. What was masked counts as it
// stands in the request; what compressAfter shortens counts whole, as in the seed.
func (g *gauge) estimated(s *AgentState, through int64) int {
	through -= s.EvictedMessages
	if through <= 0 {
		return 0
	}
	all, sum := s.Messages.All(), 0
	if through >= int64(len(all)) {
		all = s.paired()
	} else {
		all = all[:through]
	}
	for _, m := range all {
		if media, ok := m.Block.(Media); ok && masked(g.d, s, m) {
			m.Block = Text{Text: textMediaSeen(g.d, media)}
		}
		sum += m.tokens(g.m.Bodies)
	}
	return sum
}
