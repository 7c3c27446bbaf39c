package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Analysis tunes TextHeuristic. Lists hold phrases that are looked for without regard to case, with * between two words
// for up to eight others of one sentence; nil or empty = the built-in ones. The zero value of a number is its preset's.
type Analysis struct {
	Incomplete []string `json:"incomplete,omitempty"` // a text that says so is gone on with
	Completion []string `json:"completion,omitempty"` // a text that says so is finished, whatever else it says
	Deflection []string `json:"deflection,omitempty"` // a text that says so asks back, offers, narrates or refuses

	// how often a run sends a deflection back; then it is accepted
	DeflectionRetries int `json:"deflectionRetries,omitempty"`
	EmptyReplies      int `json:"emptyReplies,omitempty"` // so many in a row force the summary
	TrustGate         int `json:"trustGate,omitempty"`    // from so many calls on, no text is taken for a deflection
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

// maxPhrase bounds a phrase of a definition, in bytes, and with it the expression that finds it.
const maxPhrase = 200

// Context says how much of the conversation a request holds. The zero value: all of it, media too.
type Context struct {
	Mask bool `json:"mask,omitempty"` // media that an inference has carried stand as text in later requests

	Window       int     `json:"window,omitempty"` // tokens that a request and its reply share; 0 = nobody counts them
	Reserve      Reserve `json:"reserve,omitzero"`
	EvictBelow   int     `json:"evictBelow,omitempty"`    // fewer tokens left than this evict
	RoundMinimum int     `json:"roundMinimum,omitempty"`  // fewer tokens left than this end the loop
	Keep         int     `json:"keep,omitempty"`          // newest messages that an eviction leaves
	Summary      int     `json:"summaryTokens,omitempty"` // of what was evicted

	SummaryBy SummaryKind `json:"summary,omitempty"` // who writes it; "" = mechanical

	TruncateResult int `json:"truncateResult,omitempty"` // characters of a tool's result; 0 = all of them
	// all of a result that is cut is kept in a blob, and the model may read on in it
	KeepWhole bool `json:"keepWhole,omitempty"`
	// newest messages whose tool results stand whole, older ones are shortened in requests; 0 = all stand whole
	CompressAfter int `json:"compressAfter,omitempty"`
	// tokens of the newest messages that are kept (seed 004); 0 = all are
	Prune int `json:"prune,omitempty"`
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

// Measured reports whether all of the partition that a request decides is measured.
func (c Context) Measured() bool { return c.Reserve.System == nil && c.Reserve.Tools == nil }

// Guards stop a model that goes in circles. The zero value stops nothing.
type Guards struct {
	// a call identical to one whose result the model has is not carried out again
	DuplicateCalls bool `json:"duplicateCalls,omitempty"`
	// after so many rounds in a row in which every call failed the model is told to change its approach; 0 = never
	FailedRounds int `json:"failedRounds,omitempty"`
	// a tool that has failed so often is offered no more; 0 = always offered
	ToolFailures int `json:"toolFailures,omitempty"`
}

// Orchestrator plans a run's work with one model and carries out its steps with another before the loop begins (seed
// 002, ADR-009 there). The zero value does not.
type Orchestrator struct {
	Enabled  bool       `json:"enabled,omitempty"`
	Planner  *ModelSpec `json:"planner,omitempty"`  // nil = the agent's own model
	Router   *ModelSpec `json:"router,omitempty"`   // nil = the agent's own model
	TopK     int        `json:"topK,omitempty"`     // tools a step is offered
	MaxSteps int        `json:"maxSteps,omitempty"` // of a plan
	Retries  int        `json:"retries,omitempty"`  // attempts of a step to get a tool call
}

// planModel is a model of a plan, by its key.
type planModel struct {
	key  string
	spec *ModelSpec
}

// models are those that are not the agent's own.
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
		c.that(d.Limits.USD == 0 || m.spec.Price != nil, path+".price",
			"got nothing, want what the model costs: limits.usd is set")
		c.that(d.Limits.Period == nil || d.Limits.Period.USD == 0 || m.spec.Price != nil, path+".price",
			"got nothing, want what the model costs: limits.period.usd is set")
	}
	c.that(!o.Enabled || d.Output.Format != OutputJSON, at+".enabled",
		"got true, want false: the answer that a plan ends with is text, and output.format is json")
}

// Output is the form of what a run gives in the end.
type Output struct {
	Format  OutputKind      `json:"format"`            // "" = text
	Schema  json.RawMessage `json:"schema,omitempty"`  // of the value where Format is json; nil = any value
	History bool            `json:"history,omitempty"` // the conversation is part of the output
	Check   string          `json:"check,omitempty"`   // a hook.CheckOutput for the value where Format is json; "" = none
}

// Input says what a run is started with. The zero value takes anything.
type Input struct {
	Schema json.RawMessage `json:"schema,omitempty"` // of the input, and then a message starts no run; nil = any
}

// OutputLimits bounds a JSON output so that the reply and the end that repeats it fit into one entry.
var OutputLimits = jsonx.JSONLimits{Bytes: 128 << 10}

// Asked is the form that the model is asked for.
func (o Output) Asked(name string) OutputFormat {
	if o.Format != OutputJSON {
		return OutputFormat{}
	}
	return OutputFormat{JSON: true, Schema: o.Schema, Name: name}
}

// Prefilter offers a request only the tools that fit what it is about. The zero value offers all.
type Prefilter struct {
	TopK       int        `json:"topK,omitempty"` // of the loop's requests; 0 = all
	Embeddings Embeddings `json:"embeddings,omitzero"`
}

// Embeddings says by what tools are compared with what a request is about, for the loop and for the steps of a plan.
type Embeddings struct {
	Provider EmbeddingProvider `json:"provider,omitempty"` // "" = bm25
	ID       string            `json:"id,omitempty"`       // of the model; "" where none is asked
	BaseURL  string            `json:"baseURL,omitempty"`  // of provider openai; "" = OpenAI's own
	Key      string            `json:"key,omitempty"`      // of provider openai, ${secret:NAME}; "" = as for models
}

// Model reports whether a model has to be asked.
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

// Reminds reports whether the model is reminded of what failed, beside the results that say so.
func (d *Definition) Reminds() bool {
	return d.Text == TextRequireTool || d.Model.Dialect == DialectXML
}

// Refused is the correction of a reply that is not accepted.
func (d *Definition) Refused(kind run.CorrectionKind, detail, text string) *run.Correction {
	return &run.Correction{Lifecycle: run.LifecycleNudge, Text: text, Ephemeral: d.Corrections == CorrectionsEphemeral,
		Kind: kind, Detail: detail}
}

// Stop are the policies that stop a run (docs/agent-file.md, Limits and ends). Each is off at its zero value. They are
// asked after every inference, in this order, with its reply taken into account; the first that says so stops the run,
// once the calls of that reply have finished.
type Stop struct {
	Rounds int `json:"rounds,omitempty"` // inferences of this run, whatever came back
	// of the run; what it waited for people and services does not count
	Timeout time.Duration `json:"timeout,omitempty"`
	Tokens  int64         `json:"tokens,omitempty"` // of all kinds, in all
	// rounds one after the other, every call of which came back as an error
	ConsecutiveErrors int `json:"consecutiveErrors,omitempty"`
	// original names: the model has called one of them
	OnTool   []string `json:"onTool,omitempty"`
	Contains string   `json:"contains,omitempty"` // in the model's text
	// rounds, 2 to 20, among which two neighbours called the same tools
	LoopWindow int `json:"loopWindow,omitempty"`
}

// MaxLoopWindow is how many rounds are remembered.
const MaxLoopWindow = 20
