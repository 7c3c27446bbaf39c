package agent

// Trace ties a run to a distributed trace (W3C Trace Context). It names one span, the run's own, which is written when the run ends because
// no span stays open across functions; what happens in between names it as its parent. To the core it is data that nothing depends
// on. It is a value that nobody may change.
type Trace struct {
	Traceparent string `json:"traceparent"`          // of the run's own span
	Tracestate  string `json:"tracestate,omitempty"` // as it came from whoever asked for the run
	Parent      string `json:"parent,omitempty"`     // id of the span that asked for the run; empty = the run's is the root
}
