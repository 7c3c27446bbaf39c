package agent

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// PresetDefaults returns a definition with a preset's policies and nothing else (docs/presets.md). "" is countersign.
// An unknown preset is an error.
func PresetDefaults(p Preset) (Definition, error) {
	d := baseDefaults(cmp.Or(p, PresetCountersign))
	switch d.Preset {
	case PresetCountersign:
		d.Model.Retry = defaultRetry(3, 0)
		d.Permission.Default = DefaultByEffect
		d.Limits.Interactions, d.Limits.OnLimit = 25, OnLimitSummarise
		d.Executor, d.Early = ExecutorParallelStreaming, EarlyRefuse
		d.SystemPrompt = SystemOnce
		d.Context = defaultWindow(200_000, Reserve{Output: 4096, Safety: 768}) // system text and tools are measured
		d.Context.Mask, d.Context.KeepWhole = true, true
		d.Guards = Guards{DuplicateCalls: true, FailedRounds: 2, ToolFailures: 3}
	case PresetArvo, PresetRunner: // seeds 000 and 003
		d.Model.MaxTokens, d.Model.Temperature = 4096, new(float64)
		d.Permission.Scope = ScopeTool
		d.Limits.Interactions = 5
		d.Batch, d.Executor, d.Resume = BatchHighestPriority, ExecutorParallelBatch, run.ResumeAllAnswered
		d.TextBesideCalls = TextBesideDrop
		if d.Preset == PresetRunner {
			d.Permission.Mode = ModeAdvisory
			d.Limits.Grace, d.Limits.Validators = 2, ValidatorsNotExhausted
		} else {
			d.Permission.Mode = ModeBlockAndRetry
			d.CutText, d.SystemPrompt = CutTextNotice, SystemOnce
			d.Context.Mask = true
		}
	case PresetTirea: // seed 001
		d.Model.Retry = defaultRetry(2, 10*time.Second)
		d.Model.Continuations, d.Model.Busy = 3, BusyFail
		d.Limits.OnLimit = OnLimitStop
		d.Executor, d.Wait = ExecutorParallelStreaming, run.WaitAllSuspended
	case PresetCowork: // seed 002
		d.Model.Retry = defaultRetry(2, 0)
		d.Model.Retry.On = []ModelErrorClass{ModelServer}
		d.Model.Timeout, d.Model.CutStream, d.Model.Repair = 3*time.Minute, CutStreamKeep, RepairOn
		d.Model.MoveOn = []ModelErrorClass{ModelTimeout, ModelConnection, ModelUnavailable, ModelServer}
		d.Model.StaticText = "No model can be reached at the moment, so the task was stopped. What was done is in the " +
			"list of the run's calls. Please try again later." // for the seed's "on all models fail"; the text is ours
		d.Limits.Interactions, d.Limits.OnLimit = 20, OnLimitSummarise
		d.TextBesideCalls, d.Text = TextBesideDrop, TextHeuristic
		// partitioned as in the seed's example, which has 17,743 tokens left
		system := 500
		d.Context = defaultWindow(32_768, Reserve{System: &system, Active: 9500, Output: 2000, Safety: 768})
		d.Context.CompressAfter = 4
	case PresetForge: // seed 004
		d.Model.Dialect, d.Model.Repair, d.Model.Busy = DialectXML, RepairOn, BusyFail
		d.Batch = BatchFirst
		d.Corrections = CorrectionsEphemeral
		d.Context.Prune = 32_768
		d.Text = TextRequireTool
	default:
		return Definition{}, fmt.Errorf("preset %q: want %s, %s, %s, %s, %s or %s", p, PresetCountersign, PresetArvo,
			PresetRunner, PresetTirea, PresetCowork, PresetForge)
	}
	return d, nil
}

// baseDefaults returns the values that most presets share.
func baseDefaults(p Preset) Definition {
	return Definition{
		Preset: p,
		Model:  ModelSpec{Retry: defaultRetry(1, 0)},
		Permission: Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Scope: ScopeCall, Grants: GrantsRun,
			Approvers: []string{"group:operators"}, Expires: 24 * time.Hour},
		// Asks lets a plugin ask several times, but not forever
		Limits:          Limits{Interactions: 10, OnLimit: OnLimitError, Asks: 10},
		Batch:           BatchAll,
		Executor:        ExecutorSequential,
		Wait:            run.WaitAnyExternal,
		Resume:          run.ResumeEach,
		TextBesideCalls: TextBesideKeep,
		Early:           EarlyKeep,
		Output:          Output{Format: OutputText},
		Corrections:     CorrectionsPersist,
		SystemPrompt:    SystemEveryInference,
		Dropped:         DroppedSilent,
		CutText:         CutTextPlain,
		Text:            TextFinal,
		Analysis:        Analysis{DeflectionRetries: 3, EmptyReplies: 2, TrustGate: 3},
		XML:             XML{MissingServer: MissingServerError, Breaker: 5},
		Prompt:          Prompt{Order: PromptSeed},
		Orchestrator:    Orchestrator{TopK: 15, MaxSteps: 10, Retries: 3},
	}
}

// defaultRetry returns the backoff of seed 001. With one attempt it has no effect until an author raises the attempts.
func defaultRetry(attempts int, window time.Duration) Retry {
	return Retry{Attempts: attempts, Backoff: 250 * time.Millisecond, MaxBackoff: 2 * time.Second, Window: window,
		Jitter: 20}
}

// Resolve returns d with zero values filled from its preset, with default kinds and effects of tools, and with the
// schemas of built-in services (Contract) and of agents. It changes no value that is set. It shares the slices of d
// that it does not change, and does not Check.
func (d Definition) Resolve() (Definition, error) {
	p, err := PresetDefaults(d.Preset)
	if err != nil {
		return Definition{}, fmt.Errorf("resolve definition %q: %w", d.Name, err)
	}
	// These are taken as a whole from the definition or the preset, because their zero values are meaningful beside other
	// fields.
	p.Context, p.Guards = cmp.Or(d.Context, p.Context), cmp.Or(d.Guards, p.Guards)
	if d.Output.Format == OutputJSON { // a preset's text is not JSON
		p.Model.StaticText = ""
	}
	d = withDefaults(d, p)
	d.Tools = slices.Clone(d.Tools)
	for i, t := range d.Tools {
		switch t.Kind {
		case KindService:
			t = withDefaults(t, contracts[t.Name])
		case KindAgent: // repeatable: the same call is the same run, whose own calls pass its own gate
			t = withDefaults(t, ToolSpec{Effect: run.EffectIdempotent, Schema: DelegateSchema})
		}
		d.Tools[i] = withDefaults(t, ToolSpec{Kind: KindInternal, Effect: run.EffectNonIdempotent})
	}
	return d, nil
}

// withDefaults returns v, a struct, with the values of q in its zero fields.
func withDefaults[T any](v, q T) T {
	fill(reflect.ValueOf(&v).Elem(), reflect.ValueOf(q))
	return v
}

func fill(dst, src reflect.Value) {
	for i := range dst.NumField() {
		switch field := dst.Field(i); {
		case field.Kind() == reflect.Struct:
			fill(field, src.Field(i))
		case field.IsZero():
			field.Set(src.Field(i))
		}
	}
}
