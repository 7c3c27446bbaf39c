package agentfile

import "github.com/countersign/countersign/internal/agent"

// lambdaKeys reads the keys of a tool of kind lambda. What t has of one that it is laid over stays that one's.
func (r *reader) lambdaKeys(readers map[string]read, t *agent.ToolSpec) {
	var own *agent.LambdaTool
	mine := func() *agent.LambdaTool {
		if own == nil {
			own = &agent.LambdaTool{}
			if t.Lambda != nil {
				*own = *t.Lambda
			}
			t.Lambda = own
		}
		return own
	}
	readers["function"] = func(f field) { r.text(&mine().Function)(f) }
	readers["async"] = func(f field) { r.boolean(&mine().Async)(f) }
}
