package agent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// defaultAsks lets a plugin ask a few times, and ends what would never end.
const defaultAsks = 10

// defaultExpiry is an approval's life where nothing else is said (docs/agent-file.md).
const defaultExpiry = 24 * time.Hour

// PresetDefaults is a definition that holds a preset's policies and nothing else (docs/presets.md). "" is
// countersign. A preset that does not work yet is an error.
func PresetDefaults(p Preset) (Definition, error) {
	for _, of := range []func() Definition{countersignDefaults, arvoDefaults, runnerDefaults, tireaDefaults,
		coworkDefaults, forgeDefaults} {
		if d := of(); d.Preset == cmp.Or(p, PresetCountersign) {
			return d, nil
		}
	}
	return Definition{}, fmt.Errorf("preset %q: want %s, %s, %s, %s, %s or %s", p, PresetCountersign, PresetArvo,
		PresetRunner, PresetTirea, PresetCowork, PresetForge)
}

// baseDefaults is what most presets have in common.
func baseDefaults(p Preset) Definition {
	return Definition{
		Preset:          p,
		Model:           ModelSpec{Retry: defaultRetry(1, 0)},
		Permission:      defaultPermission(ModeSuspendAndReplay, DefaultAllow, ScopeCall),
		Limits:          Limits{Interactions: 10, OnLimit: OnLimitError, Asks: defaultAsks},
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
		Analysis:        defaultAnalysis(),
		XML:             XML{MissingServer: MissingServerError, Breaker: 5},
		Prompt:          Prompt{Order: PromptSeed},
		Orchestrator:    defaultOrchestrator(),
	}
}

func countersignDefaults() Definition {
	d := baseDefaults(PresetCountersign)
	d.Model.Retry = defaultRetry(3, 0)
	d.Permission.Default = DefaultByEffect
	d.Limits.Interactions, d.Limits.OnLimit = 25, OnLimitSummarise
	d.Executor, d.Early = ExecutorParallelStreaming, EarlyRefuse
	d.SystemPrompt = SystemOnce
	d.Context = defaultWindow(200_000, Reserve{Output: 4096, Safety: 768}) // system text and tools are measured
	d.Context.Mask, d.Context.KeepWhole = true, true
	d.Guards = Guards{DuplicateCalls: true, FailedRounds: 2, ToolFailures: 3}
	return d
}

// arvoDefaults are those of seed 000.
func arvoDefaults() Definition {
	d := baseDefaults(PresetArvo)
	d.Model.MaxTokens, d.Model.Temperature = 4096, new(float64)
	d.Permission.Mode, d.Permission.Scope = ModeBlockAndRetry, ScopeTool
	d.Limits.Interactions = 5
	d.Batch, d.Executor, d.Resume = BatchHighestPriority, ExecutorParallelBatch, run.ResumeAllAnswered
	d.TextBesideCalls, d.CutText = TextBesideDrop, CutTextNotice
	d.SystemPrompt = SystemOnce
	d.Context.Mask = true
	return d
}

// runnerDefaults are those of seed 003.
func runnerDefaults() Definition {
	d := arvoDefaults()
	d.Preset = PresetRunner
	d.Permission.Mode = ModeAdvisory
	d.Limits.Grace, d.Limits.Validators = 2, ValidatorsNotExhausted
	d.SystemPrompt = SystemEveryInference
	d.Context = Context{}
	d.CutText = CutTextPlain
	return d
}

// tireaDefaults are those of seed 001.
func tireaDefaults() Definition {
	d := baseDefaults(PresetTirea)
	d.Model.Retry = defaultRetry(2, 10*time.Second)
	d.Model.Continuations, d.Model.Busy = 3, BusyFail
	d.Limits.OnLimit = OnLimitStop
	d.Executor, d.Wait = ExecutorParallelStreaming, run.WaitAllSuspended
	return d
}

// textNoModel is what an agent says where none of its models answers (seed 002, "on all models fail"; the words are
// ours).
const textNoModel = "No model can be reached at the moment, so the task was stopped. What was done is in the list of " +
	"the run's calls. Please try again later."

// coworkDefaults are those of seed 002. The window is partitioned by the terms of its own example, whose figure of
// 17,743 remaining tokens they give.
func coworkDefaults() Definition {
	system := 500
	window := defaultWindow(32_768, Reserve{System: &system, Active: 9500, Output: 2000, Safety: 768})
	window.CompressAfter = 4
	d := baseDefaults(PresetCowork)
	d.Model.Retry = defaultRetry(2, 0)
	d.Model.Retry.On = []ModelErrorClass{ModelServer}
	d.Model.Timeout, d.Model.CutStream, d.Model.Repair = 3*time.Minute, CutStreamKeep, RepairOn
	d.Model.MoveOn = []ModelErrorClass{ModelTimeout, ModelConnection, ModelUnavailable, ModelServer}
	d.Model.StaticText = textNoModel
	d.Limits.Interactions, d.Limits.OnLimit = 20, OnLimitSummarise
	d.TextBesideCalls, d.Text = TextBesideDrop, TextHeuristic
	d.Context = window
	return d
}

// forgeDefaults are those of seed 004.
func forgeDefaults() Definition {
	d := baseDefaults(PresetForge)
	d.Model.Dialect, d.Model.Repair, d.Model.Busy = DialectXML, RepairOn, BusyFail
	d.Batch = BatchFirst
	d.Corrections = CorrectionsEphemeral
	d.Context.Prune = 32_768
	d.Text = TextRequireTool
	return d
}

func defaultPermission(m PermissionMode, d PermissionDefault, s Scope) Permission {
	return Permission{Mode: m, Default: d, Scope: s, Grants: GrantsRun, Approvers: []string{"group:operators"},
		Expires: defaultExpiry}
}

// defaultRetry is the backoff of seed 001. One attempt makes it idle; it is there for who raises the attempts.
func defaultRetry(attempts int, window time.Duration) Retry {
	return Retry{Attempts: attempts, Backoff: 250 * time.Millisecond, MaxBackoff: 2 * time.Second, Window: window,
		Jitter: 20}
}

// Resolve fills what a definition written in Go leaves at its zero value from its preset, and tools' kinds and effects
// from the defaults. It changes nothing that is set, shares d's slices where it leaves them as they are, and does not
// Check.
func (d Definition) Resolve() (Definition, error) {
	p, err := PresetDefaults(d.Preset)
	if err != nil {
		return Definition{}, fmt.Errorf("resolve definition %q: %w", d.Name, err)
	}
	d.Preset = p.Preset
	d.Model = d.Model.or(p.Model)
	d.Permission = d.Permission.or(p.Permission)
	d.Limits.Interactions = cmp.Or(d.Limits.Interactions, p.Limits.Interactions)
	d.Limits.OnLimit = cmp.Or(d.Limits.OnLimit, p.Limits.OnLimit)
	d.Limits.Asks = cmp.Or(d.Limits.Asks, p.Limits.Asks)
	d.Limits.Validators = cmp.Or(d.Limits.Validators, p.Limits.Validators)
	d.Batch = cmp.Or(d.Batch, p.Batch)
	d.Executor = cmp.Or(d.Executor, p.Executor)
	d.Wait = cmp.Or(d.Wait, p.Wait)
	d.Resume = cmp.Or(d.Resume, p.Resume)
	d.TextBesideCalls = cmp.Or(d.TextBesideCalls, p.TextBesideCalls)
	d.Early = cmp.Or(d.Early, p.Early)
	d.Output.Format = cmp.Or(d.Output.Format, p.Output.Format)
	if d.Output.Format != OutputJSON { // a preset's words are no JSON value
		d.Model.StaticText = cmp.Or(d.Model.StaticText, p.Model.StaticText)
	}
	d.Corrections = cmp.Or(d.Corrections, p.Corrections)
	d.SystemPrompt = cmp.Or(d.SystemPrompt, p.SystemPrompt)
	d.Dropped = cmp.Or(d.Dropped, p.Dropped)
	d.Context = cmp.Or(d.Context, p.Context)
	d.Text = cmp.Or(d.Text, p.Text)
	d.Analysis = d.Analysis.or(p.Analysis)
	d.Guards = cmp.Or(d.Guards, p.Guards)
	d.XML = d.XML.or(p.XML)
	d.Prompt.Order = cmp.Or(d.Prompt.Order, p.Prompt.Order)
	d.Orchestrator = d.Orchestrator.or(p.Orchestrator)
	d.CutText = cmp.Or(d.CutText, p.CutText)
	d.Tools = resolveTools(d.Tools)
	return d, nil
}

func (p Permission) or(q Permission) Permission {
	p.Mode = cmp.Or(p.Mode, q.Mode)
	p.Default = cmp.Or(p.Default, q.Default)
	p.Expires = cmp.Or(p.Expires, q.Expires)
	p.Scope = cmp.Or(p.Scope, q.Scope)
	p.Grants = cmp.Or(p.Grants, q.Grants)
	if p.Approvers == nil {
		p.Approvers = q.Approvers
	}
	return p
}

func resolveTools(tools []ToolSpec) []ToolSpec {
	if tools == nil {
		return nil
	}
	resolved := make([]ToolSpec, len(tools))
	for i, t := range tools {
		t.Kind = cmp.Or(t.Kind, KindInternal)
		t.Effect = cmp.Or(t.Effect, run.EffectNonIdempotent)
		resolved[i] = t
	}
	return resolved
}
