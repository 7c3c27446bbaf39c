// Package hook is the Go code of a deployment beside its tools: what YAML cannot say. Agents name the code they use, as
// they name tools, and one that names what is not there is refused when it is loaded. A run is pinned to its
// definition, not to this code; Version is recorded in every run, so that a change can be seen.
//
// A hook may be entered again for the same moment, after a commit that failed or whose answer was lost. What it decides
// is committed as data and never asked for again.
//
// # Plugins
//
// A Plugin has a function for each phase of a run at which it has something to do. What it can do there is what the
// phase's type offers:
//
//	| phase                                     | type            | effects                                                                  |
//	| run_start, step_start, step_end, run_end  | Moment          | Patch                                                                    |
//	| before_inference                          | BeforeInference | AddSystem, AddSession, Exclude, IncludeOnly, Transform, End, Stop, Patch |
//	| after_inference                           | AfterInference  | End, Stop, Patch                                                         |
//	| before_tool_execute                       | BeforeTool      | Block, Suspend, SetResult, Allow, Patch                                  |
//	| after_tool_execute                        | AfterTool       | AddReminder, AddMessage, Patch                                           |
//
// Plugins run in the order in which the agent names them, and each sees the shared state with what those before it have
// patched. The phases of an inference run in functions/step, those of a tool call in functions/tool, run_start in the
// former, and run_end where the run parks or ends: in either. Where a run is ended from outside, by cancelling it or by
// the sweep, run_end is entered in functions/step behind that end, at least once: Run is the run as it ended, and
// patches are dropped. A failure there is tried again and ends nothing. No plugin runs where a step is given up on: it
// may be why.
//
// Anywhere else, a plugin that returns an error or panics ends the run in error, with the code internal.
package hook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// Set is the code of a deployment by kind and name. The zero Set has the built-in plugins alone. It is not changed once
// it is in use, and safe for concurrent reading.
type Set struct {
	Version  string                       // of the code, to be recorded; "" = not said
	Builders map[string]Builder           // context builders, by the name that agents give them
	Policies map[string]Policy            // permission.policy
	Backends map[string]PermissionBackend // permission.backend
	Contexts map[string]ContextSource     // prompt.planning and prompt.rag
	Outputs  map[string]CheckOutput       // output.check
	// by the name that agents use, ^[a-z][a-z0-9-]{0,39}$; in the place of a built-in one of that name
	Plugins map[string]Factory
}

// Factory makes a plugin with the configuration that an agent has for it, nil where it has none. It does nothing else:
// it is called when an agent is loaded, to see whether it is content, and whenever a run of the agent is worked on. Its
// error is for whoever wrote the file; it must not repeat values.
type Factory func(config json.RawMessage) (Plugin, error)

// builtIn are the plugins that need no code.
var builtIn = map[string]Factory{"permission": permission, "tool-policy": toolPolicy, "reminder": reminder}

// PluginNames lists the plugins that agents may name, sorted.
func (s Set) PluginNames() []string {
	names := slices.Collect(maps.Keys(builtIn))
	names = slices.AppendSeq(names, maps.Keys(s.Plugins))
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckPlugin refuses a plugin that an agent names: one that is not there, or a configuration that it does not take.
func (s Set) CheckPlugin(spec agent.PluginSpec) error {
	_, err := s.plugin(spec)
	return err
}

func (s Set) plugin(spec agent.PluginSpec) (named, error) {
	make, ok := s.Plugins[spec.Name]
	if !ok {
		make, ok = builtIn[spec.Name]
	}
	if !ok {
		return named{}, fmt.Errorf("there is no plugin %.40q; known: %s", spec.Name, strings.Join(s.PluginNames(), ", "))
	}
	p, err := make(spec.Config)
	if err != nil {
		return named{}, fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return named{spec.Name, p}, nil
}

// Check refuses a definition that names code which is not there, or has a configuration that its code does not take.
// The error is agent.Problems.
func (s Set) Check(d *agent.Definition) error {
	var found agent.Problems
	requireKnown(&found, "builder", "context builder", d.Builder, s.Builders[d.Builder] != nil, s.BuilderNames())
	requireKnown(&found, "permission.policy", "policy function", d.Permission.Policy, s.Policies[d.Permission.Policy] != nil, s.PolicyNames())
	requireKnown(&found, "permission.backend", "permission backend", d.Permission.Backend, s.Backends[d.Permission.Backend] != nil, s.BackendNames())
	requireKnown(&found, "prompt.planning", "context source", d.Prompt.Planning, s.Contexts[d.Prompt.Planning] != nil, s.ContextNames())
	requireKnown(&found, "prompt.rag", "context source", d.Prompt.RAG, s.Contexts[d.Prompt.RAG] != nil, s.ContextNames())
	requireKnown(&found, "output.check", "output check", d.Output.Check, s.Outputs[d.Output.Check] != nil, s.OutputNames())
	for i, p := range d.Plugins {
		if err := s.CheckPlugin(p); err != nil {
			found = append(found, agent.Problem{Path: fmt.Sprintf("plugins[%d]", i), Text: err.Error()})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// requireKnown adds a problem if a name is unknown. An empty name refers to nothing and is accepted.
func requireKnown(found *agent.Problems, path, what, name string, there bool, known []string) {
	if name == "" || there {
		return
	}
	list := cmp.Or(strings.Join(known, ", "), "there is none")
	*found = append(*found, agent.Problem{Path: path, Text: fmt.Sprintf("got %.64q, want a registered %s: %s", name, what, list)})
}
