package agent

import (
	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
)

// Definition is an agent. Definition.Resolve fills what is left at its zero value with the preset's defaults, and
// Definition.Check reports everything that is wrong with it. A run keeps the definition that it started with.
type Definition = core.Definition

// The parts of a Definition. docs/presets.md describes the policies, docs/agent-file.md every key.
type (
	// ModelSpec is which model, with its limits, fallbacks and price.
	ModelSpec = core.ModelSpec
	// Price is what a model costs.
	Price = core.Price
	// HTTPTool is the request of a tool of KindHTTP: ToolSpec.HTTP.
	HTTPTool = core.HTTPTool
	// LambdaTool is the function of a tool of KindLambda: ToolSpec.Lambda.
	LambdaTool = core.LambdaTool
	// Delegate is the agent of a tool of KindAgent: ToolSpec.Agent.
	Delegate = core.Delegate
	// MCPServer is a server of tools: Definition.MCP.
	MCPServer = core.MCPServer
	// MCPPattern is what holds of a server's tools of a name.
	MCPPattern = core.MCPPattern
	// Permission is which calls wait for people, and for whom.
	Permission = core.Permission
	// Rule is one line of the policy: a pattern of tools, conditions, a verdict.
	Rule = core.Rule
	// Condition is a comparison of one argument: Path, and one of Eq, Ne, Gt, Gte, Lt, Lte, In (JSON) and Matches.
	Condition = run.Condition
	// Via is a channel by which people approve: page, slack, api, console or cli.
	Via = run.Via
	// Escalation is who else is asked, and when.
	Escalation = core.Escalation
	// Limits is how far a run goes.
	Limits = core.Limits
	// PeriodBudget is what all runs of an agent may use in a "day" or "month", in UTC: Limits.Period.
	PeriodBudget = core.PeriodBudget
	// USD is money in units of 1e-12 US dollars: 3e12 is 3 USD.
	USD = run.USD
	// Stop is when a run stops before its limits.
	Stop = core.Stop
	// Guards is what stops a model that goes in circles.
	Guards = core.Guards
	// Context is how much of the conversation a request holds.
	Context = core.Context
	// Input says what starts a run.
	Input = core.Input
	// Output is the form of what a run gives in the end.
	Output = core.Output
	// PluginSpec is a plugin that the agent uses, with its configuration.
	PluginSpec = core.PluginSpec
	// Precondition is what a call depends on between decision and execution.
	Precondition = core.Precondition
	// Undo is how a finished call is taken back.
	Undo = core.Undo
	// Preset is a named set of defaults.
	Preset = core.Preset
	// Problems is everything that is wrong with a definition, by path.
	Problems = core.Problems
)

// The presets. PresetCountersign is the default; the others behave as the systems that they are named for.
const (
	PresetCountersign = core.PresetCountersign
	PresetRunner      = core.PresetRunner
	PresetCowork      = core.PresetCowork
	PresetTirea       = core.PresetTirea
	PresetArvo        = core.PresetArvo
	PresetForge       = core.PresetForge
)

// Verdict is what a policy says of a call.
type Verdict = core.Verdict

// The verdicts.
const (
	VerdictAllow = core.VerdictAllow
	VerdictAsk   = core.VerdictAsk
	VerdictDeny  = core.VerdictDeny
)

// ToolKind says who carries out a tool's calls.
type ToolKind = core.ToolKind

// The kinds of tools.
const (
	KindInternal = core.KindInternal // a function of this program
	KindService  = core.KindService  // a service that is asked by an event and answers later
	KindMCP      = core.KindMCP      // a tool of a Definition.MCP server: listed when a run begins, never defined
	KindLambda   = core.KindLambda
	KindHTTP     = core.KindHTTP
	KindAgent    = core.KindAgent // another agent, in a run of its own
)

// ModelName is a tool's name as models are told it: dots become underscores.
func ModelName(original string) string { return core.ModelName(original) }

// Registry holds the tools, the code and the agents of a program. Fill it before use, in this order: Hook with the
// code, AddFS with the agents in files, Add with each agent in Go. Check says what is wrong with any of them. Reading
// is safe for concurrent use.
type Registry = registry.Registry

// NewRegistry makes a registry of tools. The error names a tool that is there twice.
func NewRegistry(tools ...Tool) (*Registry, error) { return registry.New(tools...) }
