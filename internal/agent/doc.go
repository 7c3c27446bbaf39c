// Package agent is the definition of an agent as data: its models, tools, rules, limits, texts and presets, the checks
// that a definition must pass, and the request and reply of a model.
//
// It does no I/O. What a definition means for a run is decided in policy, prompt and plan.
package agent
