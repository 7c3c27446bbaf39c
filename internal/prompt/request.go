// Package prompt builds what a model is shown: the request, the system text, the window of messages, long results and
// their pages, and the summary of what left the window.
package prompt

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// BuildRequest is what the model is asked for action a, which Next gave for s, under a system text, behind which stands
// the summary of what was evicted. systemDigest is that text's digest, without the summary; empty where the newest
// inference had the same.
func BuildRequest(
	d *agent.Definition, s *run.AgentState, a policy.Action, system string,
) (r agent.Request, systemDigest string) {
	if systemDigest = SystemDigest(system); systemDigest == s.System {
		systemDigest = ""
	}
	r = agent.Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Replies() + 1, Attempt: s.Plan.Failed, Model: d.Model,
		System:   withSummary(d, s, system),
		Messages: requestMessages(d, s, a), Inferences: s.Inferences, Tools: policy.Offered(d, s, a), Lifecycle: a.Lifecycle,
		Interactions: s.Interactions, Exhausted: a.Exhausted, Output: d.Output.Asked(d.Name), Late: lateCalls(s),
	}
	r.Notices = d.Notices(r)
	if d.Text == agent.TextRequireTool && a.Lifecycle != run.LifecycleSummary { // no text is the output
		r.Output = agent.OutputFormat{}
	}
	return r, systemDigest
}

// requestMessages is the conversation as the request holds it: each call's result with it, as ShowMessages has it, and
// behind it what this request alone says, an ephemeral correction, the guards' hints or the order to summarise.
func requestMessages(d *agent.Definition, s *run.AgentState, a policy.Action) []run.Message {
	messages := ShowMessages(d, s, pairResults(s))
	once := func(text string) {
		said := run.Message{Role: run.RoleUser, Block: run.Text{Text: text}, Base: -s.Inferences}
		messages = append(messages[:len(messages):len(messages)], said) // never in place
	}
	summary := a.Lifecycle == run.LifecycleSummary
	// who is to sum up is not to go on
	if c := s.Correction; c.Owed() && c.Ephemeral && (!summary || c.Lifecycle == run.LifecycleOutputError) {
		once(c.Text)
	}
	if summary {
		once(d.Word(agent.WordSummarise, nil))
		return messages
	}
	for _, hint := range policy.Hints(d, s) {
		once(hint)
	}
	if text := policy.Reminder(d, s); text != "" {
		once(text)
	}
	return messages
}

// maxBuiltBytes bounds what a context builder gives, so that the entry that holds it also holds the first reply.
const maxBuiltBytes = 160 << 10

// NeedsBuilder reports whether a context builder owes the run s its first messages.
func NeedsBuilder(d *agent.Definition, s *run.AgentState) bool {
	return d.Builder != "" && !s.Built && s.Inferences == 0
}

// Built is the fact of what a context builder gave: text and media of users, text of the model. Text is made valid, and
// a role that is not said is the user's. Where nothing was given and nothing else says what the run began with, it is
// the default message (seed 000). The error is fit to be shown.
func Built(s *run.AgentState, given []run.BuiltMessage) (run.ContextBuilt, error) {
	if len(given) == 0 && s.Unsaid {
		said, err := policy.StartMessages(nil, s.Input)
		if err != nil {
			return run.ContextBuilt{}, err
		}
		return run.ContextBuilt{Messages: []run.BuiltMessage{{Role: run.RoleUser, Content: said[0]}}}, nil
	}
	e := run.ContextBuilt{Messages: slices.Clone(given)}
	for i := range e.Messages {
		m := &e.Messages[i]
		m.Role = cmp.Or(m.Role, run.RoleUser)
		if t, ok := m.Content.Block.(run.Text); ok {
			m.Content.Block = run.Text{Text: agent.ValidText(t.Text)}
		}
		if md, ok := m.Content.Block.(run.Media); ok {
			if err := agent.CheckMedia(md); err != nil {
				return run.ContextBuilt{}, fmt.Errorf("message %d: %w", i, err)
			}
		}
	}
	if problem := e.Problem(); problem != "" {
		return run.ContextBuilt{}, errors.New(problem)
	}
	if body, err := run.MarshalEvent(e); err != nil || len(body) > maxBuiltBytes {
		return run.ContextBuilt{}, fmt.Errorf("the messages take more than %d bytes: large media belong into blobs",
			maxBuiltBytes)
	}
	return e, nil
}

// PromptContext is what an agent's hooks gave for one request.
type PromptContext struct{ Planning, RAG string }

// BuildSystem is the system text of an agent: its own instructions, rendered or built, and around them the sections
// that do not depend on what a request offers. Without sections it is the instructions. Where the text is built once,
// that holds for the sections too.
func BuildSystem(d *agent.Definition, instructions string, data agent.SystemData) (string, error) {
	if !d.Sectioned() {
		return instructions, nil
	}
	dot, err := d.PromptDot(data, d.Dialects())
	if err != nil {
		return "", err
	}
	dot["Instructions"] = instructions
	return renderSections(d, agent.InOrder(d.Prompt.Order, false), dot)
}

// renderSections renders sections that say something, each between tags of its name, which the text cannot close; the
// instructions stand between tags under PromptCode alone.
func renderSections(d *agent.Definition, sections []agent.Section, dot map[string]any) (text string, err error) {
	for _, s := range sections {
		said, err := d.SaySection(s, dot)
		if err != nil {
			return "", err
		}
		if said != "" && (s.Name != agent.SectionInstructions || d.Prompt.Order == agent.PromptCode) {
			said = "<" + s.Name + ">\n" + strings.ReplaceAll(said, "</"+s.Name, `<\/`+s.Name) + "\n</" + s.Name + ">"
		}
		text = agent.WithParagraph(text, said)
	}
	return text, nil
}

// WithPrompt is a request with the sections that are made for it alone: r's tools, what the hooks gave and the rules of
// the dialect. They are made for every dialect of the chain, since which model will be asked is not known yet. Nothing
// of it is stored. It comes last, when r has the tools that are offered. Errors are texts' own, which Check cannot see.
func WithPrompt(
	d *agent.Definition, s *run.AgentState, a policy.Action, now time.Time, r agent.Request, c PromptContext,
) (agent.Request, error) {
	if !d.Sectioned() {
		return r, nil
	}
	prompts := map[agent.Dialect]agent.PromptText{}
	for _, l := range d.Dialects() {
		text, err := renderTurn(d, l, SystemFor(d, s, a, now), r.Tools, c)
		if err != nil {
			return r, err
		}
		if d.Prompt.Order == agent.PromptCode {
			prompts[l] = agent.PromptText{System: text}
		} else {
			prompts[l] = agent.PromptText{Turn: text}
		}
	}
	r.Prompts = prompts
	return r, nil
}

// WithStepPrompt is the request for a plan's step with what a model that writes its calls as text has to be told: the
// tools, how they are called, and that one has to be. Nobody has given context for a step. Other requests are r as they
// are. The error is as WithPrompt's.
func WithStepPrompt(
	d *agent.Definition, s *run.AgentState, a policy.Action, now time.Time, r agent.Request,
) (agent.Request, error) {
	own := *d
	own.Model, own.Text = r.Model, agent.TextRequireTool
	if a.Lifecycle != run.LifecycleRoute || !own.WritesCalls() {
		return r, nil
	}
	text, err := renderTurn(&own, agent.DialectXML, SystemFor(d, s, a, now), r.Tools, PromptContext{})
	if err != nil {
		return r, err
	}
	r.Prompts = map[agent.Dialect]agent.PromptText{agent.DialectXML: {System: text}}
	return r, nil
}

func renderTurn(
	d *agent.Definition, l agent.Dialect, data agent.SystemData, tools []agent.ToolSpec, c PromptContext,
) (string, error) {
	dot, err := d.PromptDot(data, []agent.Dialect{l})
	if err != nil {
		return "", err
	}
	dot["Tools"], dot["ToolPrompt"] = agent.ToolDots(tools), ToolPrompt(tools)
	dot["Planning"], dot["RAG"] = c.Planning, c.RAG
	return renderSections(d, slices.DeleteFunc(agent.InOrder(d.Prompt.Order, true), func(s agent.Section) bool {
		return s.XML && l != agent.DialectXML || s.Tools && len(tools) == 0
	}), dot)
}

// ToolPrompt tells of tools in words, a line of compact JSON each: server, model-facing name, description and schema,
// without the correlation field. Of no tools it is "". A schema that is no JSON, which Check refuses, is left out.
func ToolPrompt(tools []agent.ToolSpec) string {
	var lines []string
	for _, t := range tools {
		var p struct {
			Server      string          `json:"server_name"`
			Name        string          `json:"tool_name"`
			Description string          `json:"description,omitempty"`
			Schema      json.RawMessage `json:"schema,omitempty"`
		}
		p.Server, p.Name = dialect.ServerOf(t)
		p.Description = t.Description
		if json.Valid(t.Schema) {
			p.Schema = t.ModelFacing().Schema
		}
		if line, err := jsonx.MarshalVerbatim(p); err == nil { // there is nothing in it that could not be written
			lines = append(lines, string(line))
		}
	}
	return strings.Join(lines, "\n")
}

// SystemDigest is a system text's digest: the SHA-256 of its bytes in hex, as blobs have it.
func SystemDigest(text string) string { return agent.HashHex([]byte(text)) }

// SystemFor is what a system text shows of s for action a. One that is built once shows the quota as it is at the
// start; one that is built for every inference, how things stand now.
func SystemFor(d *agent.Definition, s *run.AgentState, a policy.Action, now time.Time) agent.SystemData {
	data := agent.SystemData{Date: s.StartedAt.UTC().Format(time.DateOnly), Run: s.Run, Caller: policy.Caller(s),
		Input: s.Input, Interactions: run.Interactions{Max: s.Interactions.Max}}
	if d.SystemPrompt == agent.SystemEveryInference {
		data.Now, data.Interactions, data.Exhausted = now.UTC().Format(time.RFC3339), s.Interactions, a.Exhausted
	}
	return data
}

// KeptSystem is the system text of a run whose text is built once, as its first inference had it. inBlob says that it
// is the blob of s.System; ok is false where it is to be built: before the first inference, and in runs that kept none.
func KeptSystem(d *agent.Definition, s *run.AgentState) (text string, inBlob, ok bool) {
	switch {
	case d.SystemPrompt == agent.SystemEveryInference || s.System == "":
		return "", false, false
	case s.SystemBlob:
		return "", true, true
	case s.SystemText != "":
		return s.SystemText, false, true
	default: // its digest says whether it is the definition's own words, which are pinned
		return d.System, false, SystemDigest(d.System) == s.System
	}
}

// maxSystemText is how long a system text may be to stand in the journal, in bytes; a longer one is a blob.
const maxSystemText = 16 << 10

// KeepSystem keeps a text that is built once in the fact of the first inference that had it, unless the definition's
// own words give it. A text that is too long for the journal must be in the blob of its digest before the fact is
// committed; SystemBlob says so.
func KeepSystem(d *agent.Definition, e run.Replied, text string) run.Replied {
	e.SystemText, e.SystemBlob = storedSystem(d, e.System, text)
	return e
}

// KeepPlanSystem is KeepSystem for the first request of a run's plan; digest is "" where no text was built for it.
func KeepPlanSystem(d *agent.Definition, e run.Planned, text, digest string) run.Planned {
	e.System = digest
	e.SystemText, e.SystemBlob = storedSystem(d, digest, text)
	return e
}

func storedSystem(d *agent.Definition, digest, text string) (kept string, inBlob bool) {
	switch {
	case digest == "" || d.SystemPrompt == agent.SystemEveryInference || text == d.System:
		return "", false
	case len(text) <= maxSystemText:
		return text, false
	default:
		return "", true
	}
}
