package agent

import (
	"reflect"

	"github.com/countersign/countersign/internal/run"
)

// The enumerations of a definition. An agent's author chooses one value of each.
type (
	// Preset names a bundle of policies.
	Preset string

	// SystemPrompt says when the system text is built: once at the start of the run, or for every inference. "" = once.
	SystemPrompt string

	// Dropped says whether the model is told which calls its batch mode left out, by one user message that names them. ""
	// = silent.
	Dropped string

	// CutText says what happens to a text reply that its provider cut, at the output limit or by its content filter: it
	// stays as it is, or gets a permanent notice (seed 000). "" = plain. JSON outputs never get a notice, since text
	// behind a complete value would make it invalid.
	CutText string

	// BatchMode says which of a reply's calls are carried out. The others are dropped (seed 000, prioritizeToolCalls).
	BatchMode string

	// Executor sets how calls of a batch run concurrently. WaitMode and ResumeMode decide about replay.
	Executor string

	// TextBeside says what happens to text that came with tool calls.
	TextBeside string

	// EarlyDecision says what happens to a decision on a call that is not suspended yet: it is kept until the call
	// suspends, or refused because the person has not seen the call.
	EarlyDecision string

	// OnLimit says what happens when the quota is used up. The run ends in error (interactions_exhausted), as
	// stopped:max_rounds_reached, or naturally with a summary that the model writes without tools.
	OnLimit string

	// OnBudget says what happens when a run has used up its tokens or money: it ends as OnLimit says, or people are asked
	// for more. If they approve, the run gets the same amount again or the one they enter. If they deny, it is stopped.
	OnBudget string

	// Validators says when outputs and arguments of services are checked: always, or only until the quota is used up. In
	// the second case the reply to a grace call is accepted unchecked (seed 003).
	Validators string

	// OutputKind says what the model's final answer has to be: any text, or exactly one JSON value that fits the schema.
	OutputKind string

	// CorrectionMode says where the model is told that its final answer was refused: permanently in the conversation, or
	// in the next request only. "" = persist.
	CorrectionMode string

	// TextPolicy says whether a reply without calls is the final answer. It always is; or it is unless it is empty, a
	// deflection or unfinished (seed 002); or it never is, because only a loop-breaking tool ends the run (seed 004). "" =
	// final.
	TextPolicy string

	// SummaryKind says who writes the summary of evicted messages. A mechanical summary has one line for each message, by
	// rule. A model summary is written by the agent's model, and mechanical if that fails.
	SummaryKind string

	// PromptOrder is the order of sections. In the seed's order, tools and rules are in the turn's message; in the order
	// of its code, everything is in the system message. "" = seed.
	PromptOrder string

	// EmbeddingProvider says how texts are compared: by weighted common words, which needs no model, or by embedding
	// vectors of an OpenAI-compatible server or of Amazon Bedrock.
	EmbeddingProvider string

	// Cache says how long a provider may cache the beginning of a request, so that the next one costs less. "" = off. It
	// has no effect on providers that decide about caching themselves.
	Cache string

	// Dialect says how a model writes calls: as the provider's native tool calls, or as text with one call in <tool> tags
	// (seed 004), for models without native calls. "" = native.
	Dialect string

	// MissingServer says what happens to a call that names no server: it is malformed, or the server is "local". "" =
	// error.
	MissingServer string

	// CutStream says what happens when the stream of a reply breaks off: the request has failed, or the received part is
	// the reply (presets 5). "" = fail.
	CutStream string

	// Repair says what happens to a call whose arguments are not JSON: the model is told, or the arguments are repaired
	// where only one reading is possible (presets 5). "" = off.
	Repair string

	// Busy says what happens to a run when every model of its chain has failed with an error that may pass. The run waits
	// and commits nothing: the state machine retries for about an hour, after that the sweep does. Or the run ends in
	// error. "" = wait.
	Busy string

	// PermissionMode says what happens to a call that needs a person. suspend_and_replay parks the call. block_and_retry
	// (arvo) refuses the call and requests a permission for its tool. advisory (runner) tells the model which tools need
	// an approval and stops nothing.
	PermissionMode string

	// PermissionDefault is the verdict where no rule matches. by_effect allows read and idempotent tools and asks for
	// non_idempotent ones.
	PermissionDefault string

	// Scope says what a decision applies to: one call, or every call of its tool. "" = call.
	Scope string

	// Grants says how long a permission lasts under ScopeTool: for the rest of the run, for one claim, or beyond the run.
	// "" = run.
	Grants string

	// Verdict is the policy's decision about one call.
	Verdict string

	// ToolKind says where a tool runs (docs/agent-file.md).
	ToolKind string
)

// The values, in the order of their types.
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

// enums lists the values of each enumeration, in the order in which error messages name them.
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
	// KindMCP is missing, because files never contain it
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
	return run.Map(values, func(v T) string { return string(v) })
}

// EnumValues returns the values that an author may write for a type of a definition, or nil if it has none.
func EnumValues(t reflect.Type) []string { return enums[t] }

// enum adds a problem unless v is a value of its enumeration.
func (c *checker) enum(path string, v any) {
	value := reflect.ValueOf(v)
	oneOf(c, path, value.String(), enums[value.Type()]...)
}

// enumOrNone is enum for a type in which "" is the default.
func (c *checker) enumOrNone(path string, v any) {
	if reflect.ValueOf(v).String() != "" {
		c.enum(path, v)
	}
}
