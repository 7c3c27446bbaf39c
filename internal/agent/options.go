package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Analysis configures TextHeuristic. Each list holds phrases, which are searched without regard to case. A * between
// two words stands for up to eight other words of the same sentence. nil or empty = the built-in phrases. A number of
// zero means the preset's.
type Analysis struct {
	Incomplete []string `json:"incomplete,omitempty"` // phrases of an unfinished text, which the model has to continue
	Completion []string `json:"completion,omitempty"` // phrases of a finished text, whatever else it contains
	Deflection []string `json:"deflection,omitempty"` // phrases of a text that asks back, offers, narrates or refuses

	// how often a run refuses a deflection; the next one is accepted
	DeflectionRetries int `json:"deflectionRetries,omitempty"`
	EmptyReplies      int `json:"emptyReplies,omitempty"` // empty replies in a row that force the summary
	TrustGate         int `json:"trustGate,omitempty"`    // from this number of calls on, no text counts as a deflection
}

func (c *checker) analysis(at string, a Analysis) {
	zeroOrMore(c, at+".deflectionRetries", a.DeflectionRetries)
	zeroOrMore(c, at+".emptyReplies", a.EmptyReplies)
	zeroOrMore(c, at+".trustGate", a.TrustGate)
	for _, l := range []struct {
		key  string
		list []string
	}{{"incomplete", a.Incomplete}, {"completion", a.Completion}, {"deflection", a.Deflection}} {
		for i, phrase := range l.list {
			path := fmt.Sprintf("%s.%s[%d]", at, l.key, i)
			c.that(phrase != "", path, "got nothing, want a phrase")
			c.that(len(phrase) <= maxPhrase, path,
				"got %d bytes, want at most %d: a phrase is a few words that stand in a text", len(phrase), maxPhrase)
		}
	}
}

// maxPhrase is the longest phrase of a definition, in bytes. It also bounds the regular expression for it.
const maxPhrase = 200

// Context says how much of the conversation a request contains. The zero value is all of it, including media.
type Context struct {
	Mask bool `json:"mask,omitempty"` // media that the model has already seen become text in later requests

	Window       int     `json:"window,omitempty"` // tokens that a request and its reply share; 0 = not counted
	Reserve      Reserve `json:"reserve,omitzero"`
	EvictBelow   int     `json:"evictBelow,omitempty"`    // messages are evicted if fewer tokens than this are left
	RoundMinimum int     `json:"roundMinimum,omitempty"`  // the loop ends if fewer tokens than this are left
	Keep         int     `json:"keep,omitempty"`          // newest messages that an eviction keeps
	Summary      int     `json:"summaryTokens,omitempty"` // tokens of the summary of evicted messages

	SummaryBy SummaryKind `json:"summary,omitempty"` // who writes the summary; "" = mechanical

	TruncateResult int `json:"truncateResult,omitempty"` // characters of a tool's result that are shown; 0 = all
	// the full text of a cut result is kept in a blob, and the model may read the rest
	KeepWhole bool `json:"keepWhole,omitempty"`
	// newest messages whose tool results are shown in full; requests shorten older ones. 0 = none are shortened
	CompressAfter int `json:"compressAfter,omitempty"`
	// tokens of the newest messages that requests keep (seed 004); 0 = all
	Prune int `json:"prune,omitempty"`
}

// Reserve is the part of a window that is not available to the conversation, in tokens.
type Reserve struct {
	System *int `json:"system,omitempty"` // nil = the size of the system text
	Tools  *int `json:"tools,omitempty"`  // nil = the size of the tools' definitions
	Active int  `json:"active,omitempty"`
	Output int  `json:"output,omitempty"`
	Safety int  `json:"safety,omitempty"`
}

// defaultWindow returns the context policy for a window of that size.
func defaultWindow(tokens int, r Reserve) Context {
	return Context{Window: tokens, Reserve: r, EvictBelow: 5000, RoundMinimum: 1500, Keep: 10, Summary: 500,
		TruncateResult: 6000}
}

func (c *checker) context(at string, x Context) {
	for _, n := range []struct {
		key string
		got int
	}{
		{"window", x.Window}, {"reserve.active", x.Reserve.Active}, {"reserve.output", x.Reserve.Output},
		{"reserve.safety", x.Reserve.Safety},
		{"evictBelow", x.EvictBelow}, {"roundMinimum", x.RoundMinimum}, {"keep", x.Keep}, {"summaryTokens", x.Summary},
		{"truncateResult", x.TruncateResult}, {"compressAfter", x.CompressAfter}, {"prune", x.Prune},
	} {
		zeroOrMore(c, at+"."+n.key, n.got)
	}
	c.enumOrNone(at+".summary", x.SummaryBy)
	measured := func(key string, n *int) {
		c.that(n == nil || *n >= 0, at+".reserve."+key, "got less than zero, want zero or more, or measured")
	}
	measured("system", x.Reserve.System)
	measured("tools", x.Reserve.Tools)
}

// Measured reports whether the reserves for the system text and for tools are both measured.
func (c Context) Measured() bool { return c.Reserve.System == nil && c.Reserve.Tools == nil }

// Guards stop a model that goes in circles. The zero value stops nothing.
type Guards struct {
	// a call is not carried out if the model already has the result of an identical one
	DuplicateCalls bool `json:"duplicateCalls,omitempty"`
	// after this number of rounds in a row in which every call failed, the model is told to change its approach; 0 = never
	FailedRounds int `json:"failedRounds,omitempty"`
	// a tool is no longer offered after this number of failures; 0 = always offered
	ToolFailures int `json:"toolFailures,omitempty"`
}

// Orchestrator plans a run's work with one model and carries out the steps with another before the loop begins (seed
// 002, its ADR-009). The zero value is off.
type Orchestrator struct {
	Enabled  bool       `json:"enabled,omitempty"`
	Planner  *ModelSpec `json:"planner,omitempty"`  // nil = the agent's own model
	Router   *ModelSpec `json:"router,omitempty"`   // nil = the agent's own model
	TopK     int        `json:"topK,omitempty"`     // tools that a step is offered
	MaxSteps int        `json:"maxSteps,omitempty"` // steps of a plan
	Retries  int        `json:"retries,omitempty"`  // attempts to get a tool call for a step
}

// planModel is a model of the orchestrator, with its key in the definition.
type planModel struct {
	key  string
	spec *ModelSpec
}

// models returns the models that the orchestrator sets itself.
func (o Orchestrator) models() []planModel {
	return slices.DeleteFunc([]planModel{{"planner", o.Planner}, {"router", o.Router}},
		func(m planModel) bool { return m.spec == nil })
}

func (c *checker) orchestrator(at string, d *Definition) {
	o := d.Orchestrator
	for _, n := range []struct {
		key string
		got int
	}{{"topK", o.TopK}, {"maxSteps", o.MaxSteps}, {"retries", o.Retries}} {
		c.that(n.got >= 0 && (n.got > 0 || !o.Enabled), at+"."+n.key, "got %d, want more than zero", n.got)
	}
	for _, m := range o.models() {
		path := at + "." + m.key
		c.modelSettings(path, *m.spec)
		c.that(len(m.spec.Fallbacks) == 0, path+".fallbacks", "got a list, want none: where it fails, the loop takes over")
		c.that(m.spec.StaticText == "", path+".staticText", "got a text, want none: where it fails, the loop takes over")
		c.that(m.spec.MoveOn == nil, path+".moveOn", "got a list, want none: where it fails, the loop takes over")
		c.that(m.spec.Busy == "", path+".busy", "got a word, want none: where it fails, the loop takes over")
		c.that(m.spec.Continuations == 0, path+".continuations", "got a number, want none: its replies are taken as they are")
		c.price(path+".price", d.Limits, m.spec.Price)
	}
	c.that(!o.Enabled || d.Output.Format != OutputJSON, at+".enabled",
		"got true, want false: the answer that a plan ends with is text, and output.format is json")
}

// Output is the form of a run's final output.
type Output struct {
	Format  OutputKind      `json:"format"`            // "" = text
	Schema  json.RawMessage `json:"schema,omitempty"`  // schema of the value if Format is json; nil = any value
	History bool            `json:"history,omitempty"` // the output contains the conversation
	// name of a hook.CheckOutput for the value if Format is json; "" = none
	Check string `json:"check,omitempty"`
}

// Input says what a run is started with. The zero value accepts anything.
type Input struct {
	// schema of the input; if set, a message cannot start a run. nil = any
	Schema json.RawMessage `json:"schema,omitempty"`
}

// OutputLimits limits a JSON output, so that one entry has room for the reply and for the run's end that repeats it.
var OutputLimits = jsonx.JSONLimits{Bytes: 128 << 10}

// Asked returns the form of output to request from the model. name names the schema.
func (o Output) Asked(name string) OutputFormat {
	if o.Format != OutputJSON {
		return OutputFormat{}
	}
	return OutputFormat{JSON: true, Schema: o.Schema, Name: name}
}

// Prefilter offers each request only the tools that fit its subject. The zero value offers all tools.
type Prefilter struct {
	TopK       int        `json:"topK,omitempty"` // tools that the loop's requests offer; 0 = all
	Embeddings Embeddings `json:"embeddings,omitzero"`
}

// Embeddings says how tools are compared with the subject of a request, for the loop and for the steps of a plan.
type Embeddings struct {
	Provider EmbeddingProvider `json:"provider,omitempty"` // "" = bm25
	ID       string            `json:"id,omitempty"`       // the model's id; "" if no model is needed
	BaseURL  string            `json:"baseURL,omitempty"`  // for provider openai; "" = OpenAI's own
	Key      string            `json:"key,omitempty"`      // for provider openai: ${secret:NAME}; "" = as for models
}

// Model reports whether comparing needs a model.
func (e Embeddings) Model() bool { return e.Provider != "" && e.Provider != EmbeddingsBM25 }

func (c *checker) prefilter(at string, p Prefilter) {
	c.that(p.TopK >= 0, at+".topK", "got a number below zero, want zero or more")
	at += ".embeddings"
	c.enumOrNone(at+".provider", p.Embeddings.Provider)
	server := ModelSpec{BaseURL: p.Embeddings.BaseURL, Key: p.Embeddings.Key}
	openai := p.Embeddings.Provider == EmbeddingsOpenAI
	c.that(openai || server.BaseURL == "", at+".baseURL", "got one, want none: only provider openai has a server")
	c.that(openai || server.Key == "", at+".key", "got one, want none: only provider openai takes a key")
	c.server(at, server)
	c.that(p.Embeddings.Model() || p.Embeddings.ID == "", at+".id", "got a model, want none: bm25 asks nobody")
	c.that(!p.Embeddings.Model() || p.Embeddings.ID != "", at+".id", "got nothing, want the model's id")
}

// RemindsOfFailures reports whether the model is reminded of failed calls in addition to their results.
func (d *Definition) RemindsOfFailures() bool {
	return d.Text == TextRequireTool || d.Model.Dialect == DialectXML
}

// Refused returns the correction for a reply that is not accepted.
func (d *Definition) Refused(kind run.CorrectionKind, detail, text string) *run.Correction {
	return &run.Correction{Lifecycle: run.LifecycleNudge, Text: text, Ephemeral: d.Corrections == CorrectionsEphemeral,
		Kind: kind, Detail: detail}
}

// Stop holds the policies that stop a run (docs/agent-file.md, Limits and ends). A zero value turns a policy off. They
// are checked after every inference, in this order and with its reply counted. The first one that applies stops the run
// once the calls of that reply have finished.
type Stop struct {
	Rounds int `json:"rounds,omitempty"` // inferences of this run, whatever the reply
	// duration of the run, without the time it waited for people and services
	Timeout time.Duration `json:"timeout,omitempty"`
	Tokens  int64         `json:"tokens,omitempty"` // total of all kinds
	// rounds in a row in which every call returned an error
	ConsecutiveErrors int `json:"consecutiveErrors,omitempty"`
	// original names; the run stops once the model has called one of these tools
	OnTool   []string `json:"onTool,omitempty"`
	Contains string   `json:"contains,omitempty"` // the run stops once the model's text contains this
	// number of latest rounds, 2 to 20, in which two consecutive rounds called the same tools
	LoopWindow int `json:"loopWindow,omitempty"`
}

// MaxLoopWindow is the largest Stop.LoopWindow, and thus the number of rounds that a run remembers.
const MaxLoopWindow = 20
