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
//	run_start, step_start, step_end, run_end  Moment: Patch
//	before_inference     BeforeInference: AddSystem, AddSession, Exclude, IncludeOnly, Transform, End, Stop, Patch
//	after_inference      AfterInference: End, Stop, Patch
//	before_tool_execute  BeforeTool: Block, Suspend, SetResult, Allow, Patch
//	after_tool_execute   AfterTool: AddReminder, AddMessage, Patch
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
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
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
	all := maps.Clone(builtIn)
	maps.Copy(all, s.Plugins)
	return jsonx.SortedKeys(all)
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
	var p Plugin
	err := CallSafely(func() (err error) { p, err = make(spec.Config); return err })
	if err != nil {
		return named{}, fmt.Errorf("plugin %s: %w", spec.Name, err)
	}
	return named{spec.Name, p}, nil
}

// Check refuses a definition that names code which is not there, or has a configuration that its code does not take.
// The error is agent.Problems.
func (s Set) Check(d *agent.Definition) error {
	var found agent.Problems
	require := func(path, what, name string, there bool, known []string) {
		if name != "" && !there { // an empty name refers to nothing
			list := cmp.Or(strings.Join(known, ", "), "there is none")
			text := fmt.Sprintf("got %.64q, want a registered %s: %s", name, what, list)
			found = append(found, agent.Problem{Path: path, Text: text})
		}
	}
	policy, backend, planning, rag := d.Permission.Policy, d.Permission.Backend, d.Prompt.Planning, d.Prompt.RAG
	builders, contexts := jsonx.SortedKeys(s.Builders), jsonx.SortedKeys(s.Contexts)
	require("builder", "context builder", d.Builder, s.Builders[d.Builder] != nil, builders)
	require("permission.policy", "policy function", policy, s.Policies[policy] != nil, jsonx.SortedKeys(s.Policies))
	require("permission.backend", "permission backend", backend, s.Backends[backend] != nil, jsonx.SortedKeys(s.Backends))
	require("prompt.planning", "context source", planning, s.Contexts[planning] != nil, contexts)
	require("prompt.rag", "context source", rag, s.Contexts[rag] != nil, contexts)
	check := d.Output.Check
	require("output.check", "output check", check, s.Outputs[check] != nil, jsonx.SortedKeys(s.Outputs))
	for i, p := range d.Plugins {
		if err := s.CheckPlugin(p); p.Name != "" && err != nil { // Definition.Check says that there is no name
			found = append(found, agent.Problem{Path: fmt.Sprintf("plugins[%d]", i), Text: err.Error()})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// Builder makes what a model is told before it is asked: the system text and, when a run begins, the conversation's
// first messages (seed 000, "Context Engineering Phase"; seed 003). An agent names it with `builder: NAME`.
//
// Under `systemPrompt: once` it is asked when the run begins and never again, and what it gave is kept with the run;
// under every_inference it is asked before each inference, and messages count the first time alone. It may be asked
// again for the same inference, whose first attempt was lost: it should have no effects. Its error ends the run, with
// the code definition, and is shown as it is; so does a panic, of which nothing is shown. The context's own error, as
// of a function that ran out of time, ends nothing: it is asked again.
type Builder func(ctx context.Context, in BuildInput) (Built, error)

// BuildInput is what a builder builds from. What Tools holds must not be changed.
type BuildInput struct {
	Lifecycle              run.Lifecycle // of the inference that is about to be made
	Tenant, Run, Agent     string
	Caller                 string // the agent whose call the run carries out; "" = nobody delegated it
	Subject, AccessControl string
	Date                   string           // the run's first day in UTC, 2006-01-02
	Now                    time.Time        // of this inference; the run keeps what is made of it
	Input                  json.RawMessage  // what the run was started with, parentSubject$$ included; nil = a message
	System                 string           // the definition's system text, rendered; "" where it has none
	Tools                  []agent.ToolSpec // as the model is told of them, in order of definition
	Interactions           run.Interactions // made so far, and how many there may be
	Exhausted              bool             // they are used up, and this is a grace call or the summary
	MessagesWanted         bool             // the run begins: messages count
}

// Built is what a builder gives. The zero value is no system text and, for a run that was started with data, the
// default message: a user text of that data less parentSubject$$.
type Built struct {
	System   string
	Messages []Message
}

// Message is one block of the conversation: text or media of the user, text of the model.
type Message struct {
	Role  run.Role  // "" = user
	Block run.Block // agent.Text or agent.Media
	Seen  int64     // its seenCount; media with more than 0 are never shown where they are masked
}

// ErrBuilder marks errors that end the run, as the builder's own and a panic; they are fit to be shown.
var ErrBuilder = errors.New("context builder")

// maxCodeError bounds the error of a builder or a context source as it is shown, in runes.
const maxCodeError = 1000

// Build asks the builder of that name. Errors are ErrBuilder's or the context's.
func (s Set) Build(ctx context.Context, name string, in BuildInput) (Built, error) {
	b, known := s.Builders[name]
	in.Input, in.Tools = bytes.Clone(in.Input), slices.Clone(in.Tools)
	return ask(ctx, ErrBuilder, name, known, "build context", func() (Built, error) { return b(ctx, in) })
}

// ask calls the code of that name, if it is known. An error of it ends the run and is one of kind, a panic included.
// The context's own, which ends nothing, says what was being done.
func ask[T any](
	ctx context.Context, kind error, name string, known bool, doing string, call func() (T, error),
) (said T, err error) {
	if !known {
		return said, fmt.Errorf("%w %s: this deployment does not have it", kind, name)
	}
	err = CallSafely(func() (err error) { said, err = call(); return err })
	switch {
	case err == nil:
		return said, nil
	case ctx.Err() != nil && !errors.Is(err, errPanicked):
		return *new(T), fmt.Errorf("%s: %w", doing, ctx.Err())
	default:
		text := []rune(strings.ToValidUTF8(err.Error(), "\uFFFD"))
		return *new(T), fmt.Errorf("%w %s: %s", kind, name, string(text[:min(len(text), maxCodeError)]))
	}
}

// ContextSource gives a section of the prompt what it says: a plan, or what was found for the newest question (seed
// 004, "Planning Context", "RAG Context"). An agent names it with `prompt: {planning: NAME, rag: NAME}`.
//
// It is asked before every inference, and again where that is made again; what it gives is in that request alone and
// stored nowhere, so it should have no effects. "" leaves the section out. Its error ends the run, with the code
// definition, and is shown as it is; so does a panic, of which nothing is shown, and a text of more than MaxContext
// bytes. One that would rather have the agent go on without says so in its text. The context's own error, as of a
// function that ran out of time, ends nothing: it is asked again. Safe for concurrent use.
type ContextSource func(ctx context.Context, in ContextInput) (string, error)

// MaxContext bounds what a ContextSource gives, in bytes.
const MaxContext = 64 << 10

// ContextInput is what a source may go by. What Messages and Tools hold must not be changed.
type ContextInput struct {
	Lifecycle              run.Lifecycle // of the inference that is about to be made
	Tenant, Run, Agent     string
	Subject, AccessControl string
	Now                    time.Time
	Input                  json.RawMessage  // what the run was started with; nil = a message
	Messages               []run.Message    // the conversation as the request holds it
	Tools                  []agent.ToolSpec // that the request offers
	Interactions           run.Interactions
	Exhausted              bool // this is a grace call or the summary
}

// ErrContext marks errors that end the run; they are fit to be shown.
var ErrContext = errors.New("context source")

// Context asks the source of that name. Errors are ErrContext's or the context's.
func (s Set) Context(ctx context.Context, name string, in ContextInput) (string, error) {
	source, known := s.Contexts[name]
	in.Input, in.Messages, in.Tools = bytes.Clone(in.Input), slices.Clone(in.Messages), slices.Clone(in.Tools)
	text, err := ask(ctx, ErrContext, name, known, "ask context source "+name,
		func() (string, error) { return source(ctx, in) })
	switch {
	case err != nil:
		return "", err
	case len(text) > MaxContext:
		return "", fmt.Errorf("%w %s: got %d bytes, want at most %d", ErrContext, name, len(text), MaxContext)
	default:
		return strings.ToValidUTF8(text, "\uFFFD"), nil
	}
}

// CheckOutput says what is wrong with an output that is JSON and fits its schema; "" = nothing. An agent names it with
// `output: {format: json, check: NAME}`. What is wrong is sent back to the model, like a schema's error: it costs an
// interaction, and the run ends by its limit where the model does not learn.
//
// An error, or a panic, says that the output could not be checked, and ends the run, with the code internal. The
// context's own error ends nothing: the output is checked again. It may be called again for the same output, so it
// should have no effects. Safe for concurrent use.
type CheckOutput func(ctx context.Context, in OutputInput) (wrong string, err error)

// OutputInput is what a CheckOutput may go by.
type OutputInput struct {
	Tenant, Run, Agent     string
	Subject, AccessControl string
	Input                  json.RawMessage // what the run was started with; nil = a message
	State                  json.RawMessage // the run's shared state
	Output                 json.RawMessage // one JSON value, compact
}

// maxWrong bounds what a CheckOutput says to the model, in bytes.
const maxWrong = 4 << 10

const phaseOutput run.Phase = "check_output"

// Checked asks the check of that name about an output. Errors are *Error or the context's.
func (s Set) Checked(
	ctx context.Context, name string, of *run.AgentState, output json.RawMessage,
) (wrong string, err error) {
	check := s.Outputs[name]
	if check == nil {
		return "", &Error{name, phaseOutput, errMissing}
	}
	err = CallSafely(func() (err error) {
		wrong, err = check(ctx, OutputInput{
			Tenant: of.Tenant, Run: of.Run, Agent: of.Agent, Subject: of.Subject, AccessControl: of.AccessControl,
			Input: bytes.Clone(of.Input), State: bytes.Clone(of.SharedState()), Output: bytes.Clone(output),
		})
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", &Error{name, phaseOutput, err}
	default:
		return strings.ToValidUTF8(wrong[:min(len(wrong), maxWrong)], ""), nil
	}
}

// Policy lists the tools of an agent that need a permission, beside those that its rules name: by original or by
// model-facing name. It is evaluated when a run begins and whenever it is woken (seed 000, permissionPolicy), and what
// it says holds until the next time. A name that is no tool's, like an error or a panic, ends the run with
// permission_failed: a list that cannot be taken at its word lets nothing run. It does not widen what rules allow. Safe
// for concurrent use.
type Policy func(ctx context.Context, in PolicyInput) ([]string, error)

// PolicyInput is what a Policy may go by.
type PolicyInput struct {
	Agent, Version         string
	Subject, AccessControl string // as the run was started; "" = not said
	Tools                  []agent.ToolSpec
}

// PermissionBackend knows the permissions of tools beyond a run (seed 000, PermissionManager). Without one they are in
// the run's own journal. People are asked by the approval desk in either case. Any method may be called again for the
// same moment; an error or a panic of Get, Set or Request ends the run with permission_failed. Safe for concurrent
// use.
type PermissionBackend interface {
	// Get is asked once for each round of calls in which a tool needs a permission, and only about those. The map is by
	// original name; about a tool that is not in it people are asked.
	Get(ctx context.Context, c PermissionContext, tools []PermissionTool) (map[string]agent.Verdict, error)
	// Set is told what a person has said of tools, before the run goes on.
	Set(ctx context.Context, c PermissionContext, said PermissionWord) error
	// Request says why the tools are needed, for the people who will be asked; "" = nothing to say. It is called once for
	// a round's request under block_and_retry.
	Request(ctx context.Context, c PermissionContext, tools []PermissionTool) (reason string, err error)
	// Cleanup is called before the run's end is committed, well or not, and never when it only waits. It is idempotent: a
	// crash before the commit calls it again, and a message that arrives in that very moment lets the run go on after it.
	// Its error fails a run that would have ended well. Where a run is ended from outside, by cancelling it or by the
	// sweep, it is called behind that end, and again where it fails.
	Cleanup(ctx context.Context, c PermissionContext) error
}

// PermissionContext is whose permissions they are.
type PermissionContext struct {
	Tenant, Run            string
	Agent, Version         string
	Subject, AccessControl string
}

// PermissionTool is a tool and the calls of it that wait to be made.
type PermissionTool struct {
	Spec  agent.ToolSpec
	Calls []PermissionCall
}

// PermissionCall is one of them.
type PermissionCall struct {
	ID   string
	Args json.RawMessage
}

// PermissionWord is one person's word on tools, by original names.
type PermissionWord struct {
	Granted, Denied []string
	By, Note        string
}
