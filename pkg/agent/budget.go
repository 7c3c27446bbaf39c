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
	for key, n := range map[string]*int{"system": x.Reserve.System, "tools": x.Reserve.Tools} {
		c.that(n == nil || *n >= 0, at+".reserve."+key, "got less than zero, want zero or more, or measured")
	}
}
