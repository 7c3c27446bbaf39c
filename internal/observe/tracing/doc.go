// Package tracing records runs as OpenTelemetry spans in the words of OpenInference, from decorators over the ports of package runtime.
//
//	AGENT      the run, from its start to its end; written once, by whoever commits the end
//	CHAIN      one invocation of step, tool or approve
//	LLM        one request to a model, failed ones included
//	TOOL       one entering of a tool
//	GUARDRAIL  what a gate or a person said about a call
//
// No span stays open across functions. The AGENT span's context is promised when the run starts and kept in the run's journal
// (agent.Trace); every function names it as the parent of what it does, and whoever ends the run writes the span under the promised id with
// its true start. A run that waits longer than Config.LongPause goes on in a new trace, whose AGENT span links to the one before.
//
// Content is hidden unless it is asked for: see Hide. Errors are told by their class, never by their text. docs/adr/0013-tracing.md
// says why.
package tracing
