// Package prompt builds what a model is shown: the request, the system text, the window of messages, long results and
// their pages, and the summary of what left the window. It also holds the orchestrator, which asks a model for steps,
// gives each to the loop and joins the answers, and the pre-filter, which narrows a request's tools to those that fit.
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
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// BuildRequest returns the request to the model for action a of Next in state s. The summary of evicted messages
// follows the system text. systemDigest is the digest of that text without the summary; empty if the newest inference
// had the same.
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

// requestMessages returns the conversation as the request has it: ShowMessages of it, with each result behind its call,
// and behind it texts of this request only: an ephemeral correction, the guards' hints, or the order to summarise.
func requestMessages(d *agent.Definition, s *run.AgentState, a policy.Action) []run.Message {
	messages := ShowMessages(d, s, pairResults(s))
	once := func(text string) {
		said := run.Message{Role: run.RoleUser, Block: run.Text{Text: text}, Base: -s.Inferences}
		messages = append(messages[:len(messages):len(messages)], said) // never in place
	}
	summary := a.Lifecycle == run.LifecycleSummary
	// who is to sum up is not to go on
	if c := s.Correction; c.IsPending() && c.Ephemeral && (!summary || c.Lifecycle == run.LifecycleOutputError) {
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

// maxBuiltBytes is the maximum size of a context builder's messages, so that the entry that holds them also holds the
// first reply.
const maxBuiltBytes = 160 << 10

// Built returns the event with the messages of a context builder: text and media of users, text of the model. Invalid
// text is mended, and the default role is the user. If the builder gave nothing and nothing else says what the run
// began with, the message is the default one (seed 000). The error may be shown.
func Built(s *run.AgentState, given []run.BuiltMessage) (run.ContextBuilt, error) {
	if len(given) == 0 && s.NeedsMessages {
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

// BuildSystem returns the system text of an agent: its own instructions, rendered or built, and around them the
// sections that do not depend on what a request offers. Without sections it is the instructions. If the text is built
// once, the sections are, too.
func BuildSystem(d *agent.Definition, instructions string, data agent.SystemData) (string, error) {
	if !d.HasSections() {
		return instructions, nil
	}
	dot, err := d.TemplateData(data, d.Dialects())
	if err != nil {
		return "", err
	}
	dot["Instructions"] = instructions
	return renderSections(d, agent.InOrder(d.Prompt.Order, false), dot)
}

// renderSections renders the sections that are not empty, each between tags of its name, which the text cannot close.
// Instructions have tags only under PromptCode.
func renderSections(d *agent.Definition, sections []agent.Section, dot map[string]any) (text string, err error) {
	for _, s := range sections {
		said, err := d.RenderSection(s, dot)
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

// WithPrompt returns the request with the sections that are made for this request only: r's tools, what the hooks gave
// and the rules of the dialect. They are made for every dialect of the chain of models, because it is not known yet
// which model will answer. They are not stored. Call it last, when r has its tools. The errors are those of the texts,
// which Check cannot see.
func WithPrompt(
	d *agent.Definition, s *run.AgentState, a policy.Action, now time.Time, r agent.Request, c PromptContext,
) (agent.Request, error) {
	if !d.HasSections() {
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

// WithStepPrompt returns the request for a plan's step, with the instructions for a model that writes its calls as
// text: the tools, how to call them, and that one must be called. Hooks give no context for a step. Other requests are
// returned unchanged. The error is as WithPrompt's.
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
	dot, err := d.TemplateData(data, []agent.Dialect{l})
	if err != nil {
		return "", err
	}
	dot["Tools"], dot["ToolPrompt"] = agent.ToolData(tools), ToolPrompt(tools)
	dot["Planning"], dot["RAG"] = c.Planning, c.RAG
	return renderSections(d, slices.DeleteFunc(agent.InOrder(d.Prompt.Order, true), func(s agent.Section) bool {
		return s.XML && l != agent.DialectXML || s.Tools && len(tools) == 0
	}), dot)
}

// ToolPrompt describes tools, a line of compact JSON each: server, model-facing name, description and schema, without
// the correlation field. It is "" for no tools. A schema that is not JSON, which Check refuses, is left out.
func ToolPrompt(tools []agent.ToolSpec) string {
	var lines []string
	for _, t := range tools {
		var p struct {
			Server      string          `json:"server_name"`
			Name        string          `json:"tool_name"`
			Description string          `json:"description,omitempty"`
			Schema      json.RawMessage `json:"schema,omitempty"`
		}
		p.Server, p.Name = policy.ServerOf(t)
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

// SystemDigest returns the digest of a system text: the SHA-256 of its bytes in hex, as blobs have it.
func SystemDigest(text string) string { return agent.HashHex([]byte(text)) }

// SystemFor returns the values that a system text can show of s for action a. A text that is built once shows the quota
// at the start; one that is built for every inference shows the current one.
func SystemFor(d *agent.Definition, s *run.AgentState, a policy.Action, now time.Time) agent.SystemData {
	data := agent.SystemData{Date: s.StartedAt.UTC().Format(time.DateOnly), Run: s.Run, Caller: policy.Caller(s),
		Input: s.Input, Interactions: run.Interactions{Max: s.Interactions.Max}}
	if d.SystemPrompt == agent.SystemEveryInference {
		data.Now, data.Interactions, data.Exhausted = now.UTC().Format(time.RFC3339), s.Interactions, a.Exhausted
	}
	return data
}

// KeptSystem returns the system text of a run whose text is built once, as in its first inference. inBlob says that the
// text is the blob of s.System. ok is false if it must be built: before the first inference, and in runs that have
// stored none.
func KeptSystem(d *agent.Definition, s *run.AgentState) (text string, inBlob, ok bool) {
	switch {
	case d.SystemPrompt == agent.SystemEveryInference || s.System == "":
		return "", false, false
	case s.SystemBlob:
		return "", true, true
	case s.SystemText != "" || s.System == SystemDigest(""):
		return s.SystemText, false, true
	default: // its digest says whether it is the definition's own words, which are pinned
		return d.System, false, SystemDigest(d.System) == s.System
	}
}

// maxSystemText is the maximum length of a system text in the journal, in bytes. A longer one is a blob.
const maxSystemText = 16 << 10

// KeepSystem stores a text that is built once in the event of the first inference that had it, unless it is the
// definition's own text. If it is too long for the journal, SystemBlob is set, and the blob of its digest must be
// stored before the event is committed.
func KeepSystem(d *agent.Definition, e run.Replied, text string) run.Replied {
	e.SystemText, e.SystemBlob = storedSystem(d, e.System, text)
	return e
}

// KeepPlanSystem is KeepSystem for the first request of a run's plan. digest is "" if no text was built for it.
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
