package agent

import (
	"reflect"

	"github.com/countersign/countersign/internal/run"
)

// The words of which an agent's author chooses one.
type (
	// Preset names a bundle of policies.
	Preset string

	// SystemPrompt says when the system text is built: once, when the run starts, or anew for every inference.
	// "" = once.
	SystemPrompt string

	// Dropped says whether the model hears of calls that its batch mode leaves out: not a word, or one user message that
	// names them. "" = silent.
	Dropped string

	// CutText says what becomes of a text reply that its provider cut short, at the length limit or by its content
	// filter: it is left as it came, or a notice behind it says what happened, for good (seed 000). "" = plain. Outputs
	// of format json are left as they came: a word behind one would spoil a value that is whole.
	CutText string

	// BatchMode says which of a reply's calls are carried out; the others vanish (seed 000, prioritizeToolCalls).
	BatchMode string

	// Executor sets concurrency; replay is WaitMode and ResumeMode alone.
	Executor string

	// TextBeside says what becomes of text that came with tool calls.
	TextBeside string

	// EarlyDecision says what becomes of a decision on a call that is not suspended yet: it is kept until the call
	// suspends, or refused because nothing was shown.
	EarlyDecision string

	// OnLimit is what happens when the quota is used up: the run ends in error (interactions_exhausted), as
	// stopped:max_rounds_reached, or naturally with a summary that the model is asked for once and without tools.
	OnLimit string

	// OnBudget is what happens when a run has used up its tokens or its money: it ends as OnLimit says, or people are
	// asked for more. Approved, the run goes on with as much again, or with what they say; denied, it ends as stopped.
	OnBudget string

	// Validators says when outputs and the arguments of services are checked: always, or not once the quota is used up.
	// Then what the model says in a grace call is taken as it is (seed 003).
	Validators string

	// OutputKind says what the model's last word has to be: any text, or one strict JSON value that fits the schema,
	// with nothing around it.
	OutputKind string

	// CorrectionMode says where the model is told that its last word was refused: in the conversation, for good, or in
	// the next request alone. "" = persist.
	CorrectionMode string

	// TextPolicy says what a reply without calls is worth: it is the last word; it is, unless it reads as unfinished, as
	// a deflection, or says nothing (seed 002); or it never is, because only a loop-breaking tool ends the run (seed
	// 004). "" = final.
	TextPolicy string

	// SummaryKind says who writes the summary of what was evicted. Mechanical is a line for each message, by rule. Model
	// is a text that the agent's model writes, mechanical where it fails.
	SummaryKind string

	// PromptOrder is where sections stand: in the seed's order, in which tools and rules stand in the turn's message, or
	// in that of its code, in which everything stands in the system message. "" = seed.
	PromptOrder string

	// EmbeddingProvider names who compares: words that texts share, weighed, which needs no model; or vectors of a model
	// of an OpenAI-compatible server or of Amazon Bedrock.
	EmbeddingProvider string

	// Cache says how long a provider that is told to may keep the beginning of a request, so that the next one costs
	// less. "" is off as well. Providers that decide for themselves are told nothing.
	Cache string

	// Dialect is how calls travel between the runtime and a model: as the provider's own tool calls, or as text with one
	// call in <tool> tags (seed 004), for models that have none. "" = native.
	Dialect string

	// MissingServer says what becomes of a call that names no server: it is malformed, or it means the server "local".
	// "" = error.
	MissingServer string

	// CutStream says what becomes of a reply whose stream broke off after part of it was there: the request has failed,
	// or what was received is the reply (presets 5). "" = fail.
	CutStream string

	// Repair says what becomes of a call whose arguments are not JSON: the model is told, or what its words can only
	// mean is taken for them (presets 5). "" = off.
	Repair string

	// Busy says what becomes of a run when every model of its chain has failed and the last error may pass: it waits,
	// nothing is committed, and the state machine asks again for about an hour, then the sweep; or it ends in error.
	// "" = wait.
	Busy string

	// PermissionMode says what happens to a call that needs a person. suspend_and_replay parks the call itself,
	// block_and_retry (arvo) refuses it while its tool's permission is asked for, and advisory (runner) tells the model
	// which tools want an approval and stops nothing.
	PermissionMode string

	// PermissionDefault is the verdict where no rule matches. by_effect: read and idempotent tools are allowed,
	// non_idempotent ones ask.
	PermissionDefault string

	// Scope says what a decision decides: one call, or every call of its tool. "" = call.
	Scope string

	// Grants says how long a permission holds under ScopeTool: for the rest of the run, for one claim, or beyond the
	// run. "" = run.
	Grants string

	// Verdict is what policy says of one call.
	Verdict string

	// ToolKind says who runs a tool (docs/agent-file.md).
	ToolKind string
)

// The words, in the order of their types.
const (
	PresetCountersign Preset = "countersign"
	PresetArvo        Preset = "arvo"
	PresetRunner      Preset = "runner"
	PresetTirea       Preset = "tirea"
	PresetCowork      Preset = "cowork"
	PresetForge       Preset = "forge"

	SystemOnce           SystemPrompt = "once"
	SystemEveryInference SystemPrompt = "every_inference"

	DroppedSilent Dropped = "silent"
	DroppedNotify Dropped = "notify"

	CutTextPlain  CutText = "plain"
	CutTextNotice CutText = "notice"

	BatchAll             BatchMode = "all"
	BatchHighestPriority BatchMode = "highest_priority"
	BatchFirst           BatchMode = "first"

	ExecutorSequential        Executor = "sequential"
	ExecutorParallelBatch     Executor = "parallel_batch_approval"
	ExecutorParallelStreaming Executor = "parallel_streaming"

	TextBesideKeep TextBeside = "keep"
	TextBesideDrop TextBeside = "drop"

	EarlyKeep   EarlyDecision = "keep"
	EarlyRefuse EarlyDecision = "refuse"

	OnLimitError     OnLimit = "error"
	OnLimitStop      OnLimit = "stop"
	OnLimitSummarise OnLimit = "summarise"

	OnBudgetEnd OnBudget = "end"
	OnBudgetAsk OnBudget = "ask"

	ValidatorsAlways       Validators = "always"
	ValidatorsNotExhausted Validators = "not_exhausted"

	OutputText OutputKind = "text"
	OutputJSON OutputKind = "json"

	CorrectionsPersist   CorrectionMode = "persist"
	CorrectionsEphemeral CorrectionMode = "ephemeral"

	TextFinal       TextPolicy = "final"
	TextHeuristic   TextPolicy = "heuristic"
	TextRequireTool TextPolicy = "require_tool"

	SummaryMechanical SummaryKind = "mechanical"
	SummaryModel      SummaryKind = "model"

	PromptSeed PromptOrder = "seed"
	PromptCode PromptOrder = "code"

	EmbeddingsBM25    EmbeddingProvider = "bm25"
	EmbeddingsOpenAI  EmbeddingProvider = "openai"
	EmbeddingsBedrock EmbeddingProvider = "bedrock"

	CacheOff         Cache = "off"
	CacheFiveMinutes Cache = "5m"
	CacheOneHour     Cache = "1h"

	DialectNative Dialect = "native"
	DialectXML    Dialect = "xml"

	MissingServerError MissingServer = "error"
	MissingServerLocal MissingServer = "local"

	CutStreamFail CutStream = "fail"
	CutStreamKeep CutStream = "keep"

	RepairOff Repair = "off"
	RepairOn  Repair = "on"

	BusyWait Busy = "wait"
	BusyFail Busy = "fail"

	ModeSuspendAndReplay PermissionMode = "suspend_and_replay"
	ModeBlockAndRetry    PermissionMode = "block_and_retry"
	ModeAdvisory         PermissionMode = "advisory"

	DefaultByEffect PermissionDefault = "by_effect"
	DefaultAllow    PermissionDefault = "allow"
	DefaultAsk      PermissionDefault = "ask"
	DefaultDeny     PermissionDefault = "deny"

	ScopeCall Scope = "call"
	ScopeTool Scope = "tool"

	GrantsRun      Grants = "run"
	GrantsOnce     Grants = "once"
	GrantsStanding Grants = "standing"

	VerdictAllow Verdict = "allow"
	VerdictAsk   Verdict = "ask"
	VerdictDeny  Verdict = "deny"

	KindInternal ToolKind = "internal"
	KindMCP      ToolKind = "mcp"
	KindService  ToolKind = "service"
	KindLambda   ToolKind = "lambda"
	KindHTTP     ToolKind = "http"
	KindAgent    ToolKind = "agent"
)

// enums are the values of each type that has a few, in the order in which messages name them.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[Preset](): words(PresetCountersign, PresetArvo, PresetRunner, PresetTirea, PresetCowork,
		PresetForge),
	reflect.TypeFor[BatchMode]():         words(BatchAll, BatchHighestPriority, BatchFirst),
	reflect.TypeFor[Executor]():          words(ExecutorSequential, ExecutorParallelBatch, ExecutorParallelStreaming),
	reflect.TypeFor[run.WaitMode]():      words(run.WaitAnyExternal, run.WaitAllSuspended),
	reflect.TypeFor[run.ResumeMode]():    words(run.ResumeEach, run.ResumeAllAnswered, run.ResumeBatchAll),
	reflect.TypeFor[TextBeside]():        words(TextBesideKeep, TextBesideDrop),
	reflect.TypeFor[EarlyDecision]():     words(EarlyKeep, EarlyRefuse),
	reflect.TypeFor[OutputKind]():        words(OutputText, OutputJSON),
	reflect.TypeFor[CorrectionMode]():    words(CorrectionsPersist, CorrectionsEphemeral),
	reflect.TypeFor[SystemPrompt]():      words(SystemOnce, SystemEveryInference),
	reflect.TypeFor[Dropped]():           words(DroppedSilent, DroppedNotify),
	reflect.TypeFor[CutText]():           words(CutTextPlain, CutTextNotice),
	reflect.TypeFor[TextPolicy]():        words(TextFinal, TextHeuristic, TextRequireTool),
	reflect.TypeFor[Dialect]():           words(DialectNative, DialectXML),
	reflect.TypeFor[MissingServer]():     words(MissingServerError, MissingServerLocal),
	reflect.TypeFor[CutStream]():         words(CutStreamFail, CutStreamKeep),
	reflect.TypeFor[Repair]():            words(RepairOff, RepairOn),
	reflect.TypeFor[Busy]():              words(BusyWait, BusyFail),
	reflect.TypeFor[Cache]():             words(CacheOff, CacheFiveMinutes, CacheOneHour),
	reflect.TypeFor[OnLimit]():           words(OnLimitError, OnLimitStop, OnLimitSummarise),
	reflect.TypeFor[OnBudget]():          words(OnBudgetEnd, OnBudgetAsk),
	reflect.TypeFor[Every]():             words(EveryDay, EveryMonth),
	reflect.TypeFor[Validators]():        words(ValidatorsAlways, ValidatorsNotExhausted),
	reflect.TypeFor[PermissionMode]():    words(ModeSuspendAndReplay, ModeBlockAndRetry, ModeAdvisory),
	reflect.TypeFor[PermissionDefault](): words(DefaultByEffect, DefaultAllow, DefaultAsk, DefaultDeny),
	reflect.TypeFor[Scope]():             words(ScopeCall, ScopeTool),
	reflect.TypeFor[Grants]():            words(GrantsRun, GrantsOnce, GrantsStanding),
	reflect.TypeFor[Verdict]():           words(VerdictAllow, VerdictAsk, VerdictDeny),
	// KindMCP is never written
	reflect.TypeFor[ToolKind]():          words(KindInternal, KindService, KindLambda, KindHTTP, KindAgent),
	reflect.TypeFor[run.Effect]():        words(run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent),
	reflect.TypeFor[PromptOrder]():       words(PromptSeed, PromptCode),
	reflect.TypeFor[SummaryKind]():       words(SummaryMechanical, SummaryModel),
	reflect.TypeFor[EmbeddingProvider](): words(EmbeddingsBM25, EmbeddingsOpenAI, EmbeddingsBedrock),
	reflect.TypeFor[ModelErrorClass]():   words(ModelErrorClasses()...),
	reflect.TypeFor[run.Via]():           words(Vias()...),
	reflect.TypeFor[run.Confirm]():       words(ConfirmCode, ConfirmOIDC),
}

func words[T ~string](values ...T) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return words
}

// EnumValues are the values that an author may write for a type of a definition; nil where it is no enumeration.
func EnumValues(t reflect.Type) []string { return enums[t] }

// enum wants one of the values of v's type.
func (c *checker) enum(path string, v any) {
	of := reflect.ValueOf(v)
	oneOf(c, path, of.String(), enums[of.Type()]...)
}

// enumOrNone is enum where "" is the type's default.
func (c *checker) enumOrNone(path string, v any) {
	if reflect.ValueOf(v).String() != "" {
		c.enum(path, v)
	}
}
