package agent

import (
	"reflect"

	"github.com/countersign/countersign/internal/run"
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
