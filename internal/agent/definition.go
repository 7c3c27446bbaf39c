// Package agent describes an agent as data: its models, tools, rules, limits, texts and presets. It checks definitions
// and declares the request and reply of a model.
//
// The package does no I/O. Packages policy, prompt and plan apply a definition to a run.
package agent

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// Definition is an agent with every default and preset applied. When a run starts, it is stored as a blob under its
// digest, and the run uses that blob to its end. Package agentfile reads the YAML form.
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
	Early           EarlyDecision  `json:"early"` // what happens to a decision that arrives before its call is suspended
	HooksVersion    string         `json:"hooksVersion,omitempty"`

	Input       Input          `json:"input,omitzero"`
	Output      Output         `json:"output,omitzero"`
	Corrections CorrectionMode `json:"corrections,omitempty"`

	SystemPrompt SystemPrompt `json:"systemPrompt,omitempty"`
	Dropped      Dropped      `json:"dropped,omitempty"`
	Context      Context      `json:"context,omitzero"`
	Stop         Stop         `json:"stop,omitzero"`

	// name of the code that builds the system text and the first messages; "" = none
	Builder string  `json:"builder,omitempty"`
	CutText CutText `json:"cutText,omitempty"`

	Plugins []PluginSpec `json:"plugins,omitempty"` // in running order

	Text         TextPolicy        `json:"text,omitempty"`
	Analysis     Analysis          `json:"analysis,omitzero"`
	Guards       Guards            `json:"guards,omitzero"`
	XML          XML               `json:"xml,omitzero"`
	Prompt       Prompt            `json:"prompt,omitzero"`
	Orchestrator Orchestrator      `json:"orchestrator,omitzero"`
	Prefilter    Prefilter         `json:"prefilter,omitzero"`
	Wording      map[string]string `json:"wording,omitempty"` // replaces texts of the preset, by key (Wordings)

	MCP []MCPServer `json:"mcp,omitempty"` // in order of definition
	// policies of the agents that delegated this run, the root's first: a call has to pass all of them. Never set in a
	// file
	Ceilings []Permission `json:"ceilings,omitempty"`

	// names of the agents whose policies are in Ceilings, as far as they are known, in the same order. Never set in a file
	Delegators []string `json:"delegators,omitempty"`
	// the deployment's current policy for this agent; nil = unknown. It is not part of the pinned definition
	Now *Current `json:"-"`

	// replaces the model of every agent below this one; nil = each agent uses its own. Never set in a file
	Below *ModelSpec `json:"below,omitempty"`
	// the folder that confines the tools of this agent and of those below it, and where their programs start; "" = each
	// agent has its own. Never set in a file
	Folder string `json:"folder,omitempty"`
}

// Limits bounds a run.
type Limits struct {
	Interactions int `json:"interactions"` // > 0
	// inferences allowed after that, in which the model is told that its quota is used up
	Grace   int     `json:"grace,omitempty"`
	OnLimit OnLimit `json:"onLimit"` // applies once Interactions and Grace are used up, or Tokens or USD

	Tokens int64   `json:"tokens,omitempty"` // total of all kinds; 0 = no limit
	USD    run.USD `json:"usd,omitempty"`    // total of all replies; 0 = no limit. Every model needs a price
	// shared by all runs of the agent in one tenant; nil = no limit
	Period *PeriodBudget `json:"period,omitempty"`
	// applies once Tokens, USD or a budget of a period is used up; "" = end
	OnBudget OnBudget `json:"onBudget,omitempty"`

	Validators Validators `json:"validators,omitempty"` // "" = always

	// how often people may be asked about one call. After that no plugin may ask again; 0 = no limit
	Asks int `json:"asks,omitempty"`

	Parallel int `json:"parallel,omitempty"` // calls of one batch that may run at the same time; 0 = no limit
	// how many levels of delegated runs there may be below the root run; 0 = DefaultDepth
	Depth    int `json:"depth,omitempty"`
	Children int `json:"children,omitempty"` // delegated runs that a run may have open at a time; 0 = DefaultChildren

	Open int `json:"open,omitempty"` // requests to people that a run may have open at a time; 0 = DefaultOpen
}

// DefaultOpen is the value of Limits.Open where a definition sets none.
const DefaultOpen = 50

// MaxOpen returns how many requests to people a run may have open at a time.
func (d *Definition) MaxOpen() int { return cmp.Or(d.Limits.Open, DefaultOpen) }

// PeriodBudget is what many runs may use together in a calendar day or month, in UTC. Tokens, USD or both are set; 0 =
// no limit. The zero value is no budget.
type PeriodBudget struct {
	Every  Every   `json:"every"`
	Tokens int64   `json:"tokens,omitempty"` // of all kinds
	USD    run.USD `json:"usd,omitempty"`
}

// Every is the length of a period.
type Every string

// The periods.
const (
	EveryDay   Every = "day"
	EveryMonth Every = "month"
)

// Of returns the period that contains t, such as 2026-11-29 or 2026-11.
func (e Every) Of(t time.Time) string {
	if e == EveryDay {
		return t.UTC().Format(time.DateOnly)
	}
	return t.UTC().Format("2006-01")
}

// ModelSpec names a model and its settings. It never contains a key or credentials.
type ModelSpec struct {
	Provider string `json:"provider"` // bedrock | openai | script | demo
	ID       string `json:"id,omitempty"`
	BaseURL  string `json:"baseURL,omitempty"` // openai
	// openai: ${secret:NAME}, the key of the server; "" = the key for OpenAI from the environment, sent to OpenAI alone
	Key         string   `json:"key,omitempty"`
	File        string   `json:"file,omitempty"` // script
	MaxTokens   int      `json:"maxTokens,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"` // nil = the provider's default
	Cache       Cache    `json:"cache,omitempty"`       // bedrock
	Retry       Retry    `json:"retry"`

	Timeout time.Duration `json:"timeout,omitempty"` // of one request; 0 = as long as the function may run
	// tried in order, each after the one before has failed. A fallback has no fallbacks
	Fallbacks  []ModelSpec `json:"fallbacks,omitempty"`
	StaticText string      `json:"staticText,omitempty"` // the reply if all models fail; "" = that is an error
	Price      *Price      `json:"price,omitempty"`      // nil = unknown
	// how often the model is asked to continue a reply that its output limit cut
	Continuations int `json:"continuations,omitempty"`

	Dialect Dialect `json:"dialect,omitempty"` // "" = native
	// error classes that lead to the next model, or to StaticText; nil = every class
	MoveOn    []ModelErrorClass `json:"moveOn,omitzero"`
	CutStream CutStream         `json:"cutStream,omitempty"` // what happens to a reply whose stream broke off
	Repair    Repair            `json:"repair,omitempty"`    // what happens to arguments that are not JSON
	// what happens to a run while all models of the chain are busy
	Busy Busy `json:"busy,omitempty"`

	// bedrock: the model's own request fields; openai: fields of the body. An object; nil = none
	Options json.RawMessage `json:"options,omitempty"`
}

// Chain returns the model and its fallbacks, each without fallbacks of its own. A fallback inherits how the first model
// is asked, where it sets nothing: limits, temperature, dialect and retries; not what belongs to a server or a price.
func (m ModelSpec) Chain() []ModelSpec {
	chain := append([]ModelSpec{m}, m.Fallbacks...)
	first := ModelSpec{
		MaxTokens: m.MaxTokens, Temperature: m.Temperature, Timeout: m.Timeout, Dialect: m.Dialect, Retry: m.Retry,
	}
	for i := range chain {
		chain[i] = withDefaults(chain[i], first)
		chain[i].Fallbacks, chain[i].StaticText, chain[i].Continuations, chain[i].MoveOn, chain[i].Busy = nil, "", 0, nil, ""
		chain[i].CutStream, chain[i].Repair = m.CutStream, m.Repair
	}
	return chain
}

// ChainModel returns the model at a place of the chain, or the first model if there is no such place.
func (m ModelSpec) ChainModel(place int) ModelSpec {
	if chain := m.Chain(); place > 0 && place < len(chain) {
		return chain[place]
	}
	return m
}

// Retry limits how often one inference is requested from one model. Only errors of retryable classes are retried.
type Retry struct {
	Attempts   int           `json:"attempts"`   // total, including the first; > 0
	Backoff    time.Duration `json:"backoff"`    // before the second attempt; doubles with each one
	MaxBackoff time.Duration `json:"maxBackoff"` // limit of the doubled backoff

	// no request is repeated later than this after the inference's first one; 0 = only Attempts counts
	Window time.Duration `json:"window,omitempty"`
	Jitter int           `json:"jitter,omitempty"` // up to this percentage of a backoff is added at random

	On []ModelErrorClass `json:"on,omitzero"` // the retryable classes that are retried; nil = all of them
}

// Permission is the policy that decides which calls wait for a person.
type Permission struct {
	Mode      PermissionMode    `json:"mode"`
	Default   PermissionDefault `json:"default"`   // where no rule matches
	Approvers []string          `json:"approvers"` // for rules that name none; nobody else may approve
	Rules     []Rule            `json:"rules,omitempty"`
	Expires   time.Duration     `json:"expires"` // lifetime of an approval request where the rule sets none; > 0

	Scope  Scope  `json:"scope,omitempty"`
	Grants Grants `json:"grants,omitempty"`
	// mode advisory: original name of the service whose answers are approvals; "" = none
	ApprovalTool string `json:"approvalTool,omitempty"`
	// name of a hook.PermissionBackend that stores the tools' permissions; "" = the run's own journal does
	Backend string `json:"backend,omitempty"`
	// name of a hook.Policy that lists more tools that need a permission; "" = none
	Policy string `json:"policy,omitempty"`

	Bounds StandingBounds `json:"standing,omitzero"` // limits of standing grants
}

// Rule is one line of policy. Tool is a pattern over original names, in which '*' matches any run of characters. The
// first matching rule applies, but deny rules are checked before all others.
type Rule struct {
	Tool      string          `json:"tool"`
	When      []run.Condition `json:"when,omitempty"` // all must hold
	Verdict   Verdict         `json:"verdict"`
	Approvers []string        `json:"approvers,omitempty"`
	Expires   time.Duration   `json:"expires,omitempty"`
	Note      string          `json:"note,omitempty"` // shown to the approver

	// number of different people who have to approve; 0 and 1 = one. One denial is always enough
	Quorum   int  `json:"quorum,omitempty"`
	FourEyes bool `json:"fourEyes,omitempty"` // the people for whom the run acts may deny but not approve
	// interval after which people who have not decided are reminded; 0 = no reminders
	Remind   time.Duration `json:"remind,omitempty"`
	Escalate *Escalation   `json:"escalate,omitempty"` // nil = nobody else is asked

	Via     []run.Via   `json:"via,omitempty"`     // channels through which people may approve; empty = all
	Confirm run.Confirm `json:"confirm,omitempty"` // extra confirmation for approvals on a page behind a link
}

// Channels are the channels through which people may approve, and the confirmation that an approval needs.
type Channels struct {
	Via     []run.Via   `json:"via,omitzero"` // nil = every channel, empty = none
	Confirm run.Confirm `json:"confirm,omitempty"`
}

// Channels returns the channels of the rule.
func (r Rule) Channels() Channels {
	if len(r.Via) == 0 {
		return Channels{Confirm: r.Confirm}
	}
	return Channels{r.Via, r.Confirm}
}

// The channels.
const (
	ViaPage    run.Via = "page" // behind a signed link, such as one in a mail
	ViaSlack   run.Via = "slack"
	ViaAPI     run.Via = "api"
	ViaConsole run.Via = "console" // the web console
	ViaCLI     run.Via = "cli"     // on the machine that has the store
)

// Vias returns all channels.
func Vias() []run.Via { return []run.Via{ViaPage, ViaSlack, ViaAPI, ViaConsole, ViaCLI} }

// The confirmations. A sign-in also satisfies a rule that wants a code.
const (
	ConfirmCode run.Confirm = "code" // a code that is sent through another channel than the link
	ConfirmOIDC run.Confirm = "oidc" // an OpenID Connect sign-in of the person to whom the link was sent
)

// covers reports whether an approval that was confirmed by got satisfies a rule that wants want.
func covers(got, want run.Confirm) bool { return want == "" || got == want || got == ConfirmOIDC }

// Allow reports whether people may approve through the channel.
func (c Channels) Allow(via run.Via) bool { return c.Via == nil || slices.Contains(c.Via, via) }

// ConfirmationBy returns the extra confirmation that an approval through the channel needs; "" = none.
func (c Channels) ConfirmationBy(via run.Via) run.Confirm {
	if via != ViaPage {
		return ""
	}
	return c.Confirm
}

// Count reports whether an approval counts that came through the channel with that confirmation.
func (c Channels) Count(via run.Via, confirmed run.Confirm) bool {
	return c.Allow(via) && covers(confirmed, c.ConfirmationBy(via))
}

// Narrow returns the channels that both allow, with the stricter confirmation.
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

// Words returns the names of the channels as a text for people.
func (c Channels) Words() string {
	if c.Via == nil {
		return "every channel"
	}
	// always in the same order
	allowed := slices.DeleteFunc(Vias(), func(v run.Via) bool { return !slices.Contains(c.Via, v) })
	return cmp.Or(ViaText(strings.Join(words(allowed...), ", ")),
		"no channel, as the policies that apply have none in common")
}

// ViaText names channels in a text for people.
func ViaText[T ~string](vias T) string {
	return strings.NewReplacer("slack", "Slack", "api", "API", "cli", "command line").Replace(string(vias))
}

// Escalation asks more people about a request that nobody has decided for a while.
type Escalation struct {
	After time.Duration `json:"after"` // since the request; > 0
	To    []string      `json:"to"`    // principals in addition to the approvers; at least one
}

// Tool finds a tool by its original name, including built-in tools.
func (d *Definition) Tool(original string) (ToolSpec, bool) {
	return d.find(func(t ToolSpec) bool { return t.Name == original })
}

// OriginalName returns the original name of the tool with that model-facing name. If there is no such tool, it returns
// the name unchanged.
func (d *Definition) OriginalName(model string) string {
	if t, ok := d.ToolByModelName(model); ok {
		return t.Name
	}
	return model
}

// ToolByModelName finds a tool by its model-facing name, including built-in tools.
func (d *Definition) ToolByModelName(name string) (ToolSpec, bool) {
	return d.find(func(t ToolSpec) bool { return t.ModelName() == name })
}

// find returns the first matching tool among d's tools and all built-in tools that d may ever offer.
func (d *Definition) find(matches func(ToolSpec) bool) (ToolSpec, bool) {
	if i := slices.IndexFunc(d.Tools, matches); i >= 0 {
		return d.Tools[i], true
	}
	builtins := d.EveryBuiltin()
	if i := slices.IndexFunc(builtins, matches); i >= 0 {
		return builtins[i], true
	}
	return ToolSpec{}, false
}

// MaxChildren limits how many delegated runs one run may start in total.
const MaxChildren = 64

// WithModelForAll returns the agent with the provider, id, base URL, file, key and options of m for its model, and for
// every agent below it. Key and options are replaced too, because they were written for another server. Prices and
// other settings of the model stay.
func (d Definition) WithModelForAll(m ModelSpec) Definition {
	d.Model.Provider, d.Model.ID, d.Model.BaseURL, d.Model.File = m.Provider, m.ID, m.BaseURL, m.File
	d.Model.Key, d.Model.Options, d.Model.Fallbacks = m.Key, m.Options, nil
	d.Orchestrator.Planner, d.Orchestrator.Router = nil, nil
	d.Below = &m
	return d
}

// ConfinedTo returns the agent with its tools confined to a folder, an absolute path, in which its programs start as
// well. The same applies to every agent below it.
func (d Definition) ConfinedTo(folder string) Definition {
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

// PluginSpec names a plugin of a definition. Plugins run in the order in which they are listed.
type PluginSpec struct {
	Name   string          `json:"name"`             // the name under which it is registered
	Config json.RawMessage `json:"config,omitempty"` // the plugin's own configuration; nil = none
}

// PluginGate is the decision of an agent's plugins about a call before it runs. At most one field is set. The zero
// value lets the call pass.
type PluginGate struct {
	Block   *string         // the call fails with this reason, which the model may see
	Result  *ToolResultData // the call has this result; the tool is not entered
	Suspend *run.Ticket     // people are asked first
}
