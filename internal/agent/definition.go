// Package agent is the definition of an agent as data: its models, tools, rules, limits, texts and presets, the checks
// that a definition must pass, and the request and reply of a model.
//
// It does no I/O. What a definition means for a run is decided in policy, prompt and plan.
package agent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// Definition is an agent, resolved: every default and preset applied. It is stored as a blob under its digest when a
// run starts, and the run uses that one to its end. The YAML form is read by package agentfile.
type Definition struct {
	Name            string         `json:"name"` // ^[a-z][a-z0-9-]{0,39}$
	Version         string         `json:"version,omitempty"`
	Preset          Preset         `json:"preset"`
	System          string         `json:"system"` // text/template, see RenderSystem; may be empty with a Builder
	Model           ModelSpec      `json:"model"`
	Tools           []ToolSpec     `json:"tools,omitempty"` // in order of definition
	Permission      Permission     `json:"permission"`
	Limits          Limits         `json:"limits"`
	Batch           BatchMode      `json:"batch"`
	Executor        Executor       `json:"executor"`
	Wait            run.WaitMode   `json:"wait"`
	Resume          run.ResumeMode `json:"resume"`
	TextBesideCalls TextBeside     `json:"textBesideCalls"`
	Early           EarlyDecision  `json:"early"` // a decision before the call is suspended
	HooksVersion    string         `json:"hooksVersion,omitempty"`

	Input       Input          `json:"input,omitzero"`
	Output      Output         `json:"output,omitzero"`
	Corrections CorrectionMode `json:"corrections,omitempty"`

	SystemPrompt SystemPrompt `json:"systemPrompt,omitempty"`
	Dropped      Dropped      `json:"dropped,omitempty"`
	Context      Context      `json:"context,omitzero"`
	Stop         Stop         `json:"stop,omitzero"`

	// the code that builds the system text and the first messages, by name; "" = none
	Builder string  `json:"builder,omitempty"`
	CutText CutText `json:"cutText,omitempty"`

	Plugins []PluginSpec `json:"plugins,omitempty"` // in the order in which they run

	Text         TextPolicy        `json:"text,omitempty"`
	Analysis     Analysis          `json:"analysis,omitzero"`
	Guards       Guards            `json:"guards,omitzero"`
	XML          XML               `json:"xml,omitzero"`
	Prompt       Prompt            `json:"prompt,omitzero"`
	Orchestrator Orchestrator      `json:"orchestrator,omitzero"`
	Prefilter    Prefilter         `json:"prefilter,omitzero"`
	Wording      map[string]string `json:"wording,omitempty"` // texts instead of the preset's, by key (Wordings)

	MCP []MCPServer `json:"mcp,omitempty"` // in order of definition
	// of the agents that delegated to this one, the root's first: what any of them would not let pass does not pass. Never
	// written in a file
	Ceilings []Permission `json:"ceilings,omitempty"`

	// the agents that Ceilings are of, as far as they are known, in their order. Never written in a file
	Delegators []string `json:"delegators,omitempty"`
	// what the deployment says of the agents since; nil = nothing is known. It is no part of what is pinned
	Now *Current `json:"-"`

	// in place of the model of every agent below this one's runs; nil = each has its own. Never written in a file
	Below *ModelSpec `json:"below,omitempty"`
	// Folder is where every tool of this agent's and of those below it works, and its programs start; "" = each has its
	// own. Never written in a file.
	Folder string `json:"folder,omitempty"`
}

// Limits bounds a run.
type Limits struct {
	Interactions int `json:"interactions"` // > 0
	// inferences beyond them, which the model makes knowing that it is at its end
	Grace   int     `json:"grace,omitempty"`
	OnLimit OnLimit `json:"onLimit"` // once both are used up, or one of the two below is

	Tokens int64   `json:"tokens,omitempty"` // of all kinds, in all; 0 = no limit
	USD    run.USD `json:"usd,omitempty"`    // of all replies; 0 = no limit. Every model needs a price
	// what all runs of the agent in a tenant may use; nil = no limit
	Period *PeriodBudget `json:"period,omitempty"`
	// what happens once tokens or usd are used up, also those of a period; "" = end
	OnBudget OnBudget `json:"onBudget,omitempty"`

	Validators Validators `json:"validators,omitempty"` // "" = always

	// how often people are asked about one call before no plugin may ask again; 0 = no limit
	Asks int `json:"asks,omitempty"`

	Parallel int `json:"parallel,omitempty"` // calls of one batch that run at a time; 0 = no bound
	// how many runs below the root there may be in a line of agents that ask each other; 0 = DefaultDepth
	Depth    int `json:"depth,omitempty"`
	Children int `json:"children,omitempty"` // runs that a run's calls are, at a time; 0 = DefaultChildren

	Open int `json:"open,omitempty"` // requests to people that a run has open at a time; 0 = DefaultOpen
}

// DefaultOpen is how many requests to people a run has open where its definition does not say.
const DefaultOpen = 50

// MaxOpen is how many requests to people a run has open at a time.
func (d *Definition) MaxOpen() int { return cmp.Or(d.Limits.Open, DefaultOpen) }

// PeriodBudget is what many runs may use together in a day or a month of the calendar, in UTC. One of Tokens and USD,
// or both, is set; 0 = no limit. The zero value is no budget.
type PeriodBudget struct {
	Every  Every   `json:"every"`
	Tokens int64   `json:"tokens,omitempty"` // of all kinds
	USD    run.USD `json:"usd,omitempty"`
}

// Every is how long a period is.
type Every string

// The periods.
const (
	EveryDay   Every = "day"
	EveryMonth Every = "month"
)

// Of is the period that t is in, as 2026-11-29 or 2026-11.
func (e Every) Of(t time.Time) string {
	if e == EveryDay {
		return t.UTC().Format(time.DateOnly)
	}
	return t.UTC().Format("2006-01")
}

// ModelSpec names a model. Keys and endpoints' credentials are never in it.
type ModelSpec struct {
	Provider string `json:"provider"` // bedrock | openai | script | demo
	ID       string `json:"id,omitempty"`
	BaseURL  string `json:"baseURL,omitempty"` // openai
	// openai: ${secret:NAME}, the key of the server; "" = OpenAI's from the environment, for OpenAI alone
	Key         string   `json:"key,omitempty"`
	File        string   `json:"file,omitempty"` // script
	MaxTokens   int      `json:"maxTokens,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"` // nil = the provider's default
	Cache       Cache    `json:"cache,omitempty"`       // bedrock
	Retry       Retry    `json:"retry"`

	Timeout time.Duration `json:"timeout,omitempty"` // of one request; 0 = as long as the function may run
	// asked in order where the one before fails; none has any itself
	Fallbacks  []ModelSpec `json:"fallbacks,omitempty"`
	StaticText string      `json:"staticText,omitempty"` // said where all of them fail; "" = that is an error
	Price      *Price      `json:"price,omitempty"`      // nil = not known
	// how often a reply that the limit of its output cut is gone on with
	Continuations int `json:"continuations,omitempty"`

	Dialect Dialect `json:"dialect,omitempty"` // "" = native
	// classes that move on to the next model, or to StaticText; nil = every class
	MoveOn    []ModelErrorClass `json:"moveOn,omitzero"`
	CutStream CutStream         `json:"cutStream,omitempty"` // what becomes of a reply whose stream broke off
	Repair    Repair            `json:"repair,omitempty"`    // what becomes of arguments that are not JSON
	// what becomes of a run while all models of the chain are busy
	Busy Busy `json:"busy,omitempty"`

	// bedrock: the model's own request fields; openai: fields of the body. An object; nil = none
	Options json.RawMessage `json:"options,omitempty"`
}

// Chain is the model and its fallbacks, each as it is asked: alone, with the first one's retries and dialect where it
// has none of its own, and with what is the whole chain's.
func (m ModelSpec) Chain() []ModelSpec {
	chain := append([]ModelSpec{m}, m.Fallbacks...)
	for i := range chain {
		chain[i].Retry = withDefaults(chain[i].Retry, m.Retry)
		chain[i].Dialect = cmp.Or(chain[i].Dialect, m.Dialect)
		chain[i].Fallbacks, chain[i].StaticText, chain[i].Continuations, chain[i].MoveOn, chain[i].Busy = nil, "", 0, nil, ""
		chain[i].CutStream, chain[i].Repair = m.CutStream, m.Repair
	}
	return chain
}

// Answering is the model at a place of the chain; the first where there is no such place.
func (m ModelSpec) Answering(place int) ModelSpec {
	if chain := m.Chain(); place > 0 && place < len(chain) {
		return chain[place]
	}
	return m
}

// Retry bounds how often one inference is asked of one model; only retryable classes are asked again.
type Retry struct {
	Attempts   int           `json:"attempts"`   // in all, the first included; > 0
	Backoff    time.Duration `json:"backoff"`    // before the second; doubles
	MaxBackoff time.Duration `json:"maxBackoff"` // cap

	// no request is repeated later than this after the inference's first; 0 = attempts alone count
	Window time.Duration `json:"window,omitempty"`
	Jitter int           `json:"jitter,omitempty"` // percent of a wait that chance may add to it

	On []ModelErrorClass `json:"on,omitzero"` // the retryable classes that are asked again; nil = all of them
}

// Permission is the policy that decides which calls wait for a person.
type Permission struct {
	Mode      PermissionMode    `json:"mode"`
	Default   PermissionDefault `json:"default"`   // where no rule matches
	Approvers []string          `json:"approvers"` // for rules without their own; nobody else, ever
	Rules     []Rule            `json:"rules,omitempty"`
	Expires   time.Duration     `json:"expires"` // an approval's life where the rule says none; > 0

	Scope  Scope  `json:"scope,omitempty"`
	Grants Grants `json:"grants,omitempty"`
	// advisory: the original name of the service whose answers are approvals; "" = none
	ApprovalTool string `json:"approvalTool,omitempty"`
	// a hook.PermissionBackend, which knows the tools' permissions; "" = the run's own journal does
	Backend string `json:"backend,omitempty"`
	// a hook.Policy, which lists more tools that need a permission; "" = none
	Policy string `json:"policy,omitempty"`

	Bounds StandingBounds `json:"standing,omitzero"` // how far standing grants go at most
}

// Rule is one line of policy. Tool is a pattern over original names: '*' matches any run of characters. The first rule
// that matches wins, but deny rules are checked before all others.
type Rule struct {
	Tool      string          `json:"tool"`
	When      []run.Condition `json:"when,omitempty"` // all must hold
	Verdict   Verdict         `json:"verdict"`
	Approvers []string        `json:"approvers,omitempty"`
	Expires   time.Duration   `json:"expires,omitempty"`
	Note      string          `json:"note,omitempty"` // shown to the person who is asked

	// so many different people approve; 0 and 1 = one. One denial is enough for all
	Quorum   int  `json:"quorum,omitempty"`
	FourEyes bool `json:"fourEyes,omitempty"` // the people for whom the run acts may deny and not approve
	// who has not decided by then is reminded, and again after as long; 0 = nobody is
	Remind   time.Duration `json:"remind,omitempty"`
	Escalate *Escalation   `json:"escalate,omitempty"` // nil = nobody else is asked

	Via     []run.Via   `json:"via,omitempty"`     // the channels by which people approve; empty = every one
	Confirm run.Confirm `json:"confirm,omitempty"` // what an approval on a page behind a link takes besides
}

// Channels are the channels by which people approve, and what they confirm it with.
type Channels struct {
	Via     []run.Via   `json:"via,omitzero"` // nil = every channel, empty = none
	Confirm run.Confirm `json:"confirm,omitempty"`
}

// Channels are those of the rule.
func (r Rule) Channels() Channels {
	if len(r.Via) == 0 {
		return Channels{Confirm: r.Confirm}
	}
	return Channels{r.Via, r.Confirm}
}

// The channels.
const (
	ViaPage    run.Via = "page" // behind a signed link, as in a mail
	ViaSlack   run.Via = "slack"
	ViaAPI     run.Via = "api"
	ViaConsole run.Via = "console" // the web console
	ViaCLI     run.Via = "cli"     // on the machine of the store
)

// Vias returns all channels.
func Vias() []run.Via { return []run.Via{ViaPage, ViaSlack, ViaAPI, ViaConsole, ViaCLI} }

// The confirmations. A sign-in also counts where a code is asked for.
const (
	ConfirmCode run.Confirm = "code" // a code that came by another channel than the link
	ConfirmOIDC run.Confirm = "oidc" // a sign-in, by OpenID Connect, of the person whom the link was sent to
)

// covers reports whether an approval that was confirmed by c counts where o is asked for.
func covers(c, o run.Confirm) bool { return o == "" || c == o || c == ConfirmOIDC }

// Allow reports whether people may approve by the channel.
func (c Channels) Allow(via run.Via) bool { return c.Via == nil || slices.Contains(c.Via, via) }

// ConfirmationBy returns what an approval by the channel takes besides.
func (c Channels) ConfirmationBy(via run.Via) run.Confirm {
	if via != ViaPage {
		return ""
	}
	return c.Confirm
}

// Count reports whether an approval by the channel counts that was confirmed so.
func (c Channels) Count(via run.Via, confirmed run.Confirm) bool {
	return c.Allow(via) && covers(confirmed, c.ConfirmationBy(via))
}

// Narrow returns what both allow.
func (c Channels) Narrow(o Channels) Channels {
	switch {
	case c.Via == nil:
		c.Via = o.Via
	case o.Via != nil:
		c.Via = slices.DeleteFunc(append([]run.Via{}, c.Via...), func(v run.Via) bool { return !slices.Contains(o.Via, v) })
	}
	if !covers(c.Confirm, o.Confirm) {
		c.Confirm = o.Confirm
	}
	return c
}

// Words name the channels for people.
func (c Channels) Words() string {
	if c.Via == nil {
		return "every channel"
	}
	// in one order, however the rules have them
	listed := slices.DeleteFunc(Vias(), func(v run.Via) bool { return !slices.Contains(c.Via, v) })
	return cmp.Or(strings.Join(words(listed...), ", "), "no channel, as the policies that apply have none in common")
}

// Escalation lets others decide as well about what nobody has decided for a while.
type Escalation struct {
	After time.Duration `json:"after"` // since the request; > 0
	To    []string      `json:"to"`    // principals, beside the approvers; at least one
}

// Tool finds a tool by its original name, one that d offers of itself as well.
func (d *Definition) Tool(original string) (ToolSpec, bool) {
	return d.find(func(t ToolSpec) bool { return t.Name == original })
}

// OriginalName is the original of a model-facing name; of one that no tool has, the name itself.
func (d *Definition) OriginalName(model string) string {
	if t, ok := d.ToolByModelName(model); ok {
		return t.Name
	}
	return model
}

// ToolByModelName finds a tool by the name the model uses, a built-in one too.
func (d *Definition) ToolByModelName(name string) (ToolSpec, bool) {
	return d.find(func(t ToolSpec) bool { return t.ModelName() == name })
}

// find finds one of d's tools, or of all those that d may ever offer behind its own.
func (d *Definition) find(is func(ToolSpec) bool) (ToolSpec, bool) {
	if i := slices.IndexFunc(d.Tools, is); i >= 0 {
		return d.Tools[i], true
	}
	builtins := d.EveryBuiltin()
	if i := slices.IndexFunc(builtins, is); i >= 0 {
		return builtins[i], true
	}
	return ToolSpec{}, false
}

// MaxChildren bounds how many runs the calls of one run may start in all.
const MaxChildren = 64

// Throughout is the agent with the provider, id, base URL, file, key and options of m in place of its models', and of
// those of every agent below it: a key and request fields are for the server they were written for. What its own model
// costs and its other settings stay.
func (d Definition) Throughout(m ModelSpec) Definition {
	d.Model.Provider, d.Model.ID, d.Model.BaseURL, d.Model.File = m.Provider, m.ID, m.BaseURL, m.File
	d.Model.Key, d.Model.Options, d.Model.Fallbacks = m.Key, m.Options, nil
	d.Orchestrator.Planner, d.Orchestrator.Router = nil, nil
	d.Below = &m
	return d
}

// Within is the agent whose tools are confined to a folder, an absolute path, and whose programs start there, and so of
// every agent below it.
func (d Definition) Within(folder string) Definition {
	d.Folder, d.Tools, d.MCP = folder, slices.Clone(d.Tools), slices.Clone(d.MCP)
	for i := range d.Tools {
		d.Tools[i].Root = folder
	}
	for i := range d.MCP {
		if len(d.MCP[i].Command) > 0 {
			d.MCP[i].Dir = folder
		}
	}
	return d
}

// PluginSpec names a plugin of a definition. Plugins run in the order in which they are named.
type PluginSpec struct {
	Name   string          `json:"name"`             // ^[a-z][a-z0-9-]{0,39}$, as it is registered
	Config json.RawMessage `json:"config,omitempty"` // the plugin's own; nil = none
}

// PluginGate is what the plugins of an agent say of a call before it runs. At most one field is set; the zero value
// lets the call pass.
type PluginGate struct {
	Block   *string         // the reason, fit for the model: the call fails
	Result  *ToolResultData // the call's result: the tool is not entered
	Suspend *run.Ticket     // somebody is asked first
}
