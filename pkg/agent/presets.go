package agent

import (
	"cmp"
	"fmt"
	"time"
)

// defaultExpiry is an approval's life where nothing else is said (interfaces.md, section 2).
const defaultExpiry = 24 * time.Hour

// PresetDefaults is a definition that holds a preset's policies and nothing else (semantics.md, section 6). "" is
// countersign. A preset that does not work yet is an error.
//
// One of countersign's values waits for its feature: there is no context window.
func PresetDefaults(p Preset) (Definition, error) {
	switch p {
	case PresetCountersign, "":
		return countersignDefaults(), nil
	case PresetArvo:
		return arvoDefaults(), nil
	}
	return Definition{}, fmt.Errorf("preset %q: want %s or %s", p, PresetCountersign, PresetArvo)
}

func countersignDefaults() Definition {
	return Definition{
		Preset:          PresetCountersign,
		Model:           ModelSpec{Retry: Retry{Attempts: 3, Backoff: 250 * time.Millisecond, MaxBackoff: 2 * time.Second}},
		Permission:      defaultPermission(ModeSuspendAndReplay, DefaultByEffect),
		Limits:          Limits{Interactions: 25, OnLimit: OnLimitSummarise},
		Batch:           BatchAll,
		Executor:        ExecutorParallelStreaming,
		Wait:            WaitAnyExternal,
		Resume:          ResumeEach,
		TextBesideCalls: TextBesideKeep,
		Early:           EarlyRefuse,
		Output:          Output{Format: OutputText},
		Corrections:     CorrectionsPersist,
	}
}

// arvoDefaults are those of seed 000. Its one attempt makes the backoff idle; it is there for who raises the attempts.
func arvoDefaults() Definition {
	return Definition{
		Preset:          PresetArvo,
		Model:           ModelSpec{Retry: Retry{Attempts: 1, Backoff: 250 * time.Millisecond, MaxBackoff: 2 * time.Second}},
		Permission:      defaultPermission(ModeBlockAndRetry, DefaultAllow),
		Limits:          Limits{Interactions: 5, OnLimit: OnLimitError},
		Batch:           BatchHighestPriority,
		Executor:        ExecutorParallelBatch,
		Wait:            WaitAnyExternal,
		Resume:          ResumeAllAnswered,
		TextBesideCalls: TextBesideDrop,
		Early:           EarlyKeep,
		Output:          Output{Format: OutputText},
		Corrections:     CorrectionsPersist,
	}
}

func defaultPermission(m PermissionMode, d PermissionDefault) Permission {
	return Permission{Mode: m, Default: d, Approvers: []string{"group:operators"}, Expires: defaultExpiry}
}

// Resolve fills what a definition written in Go leaves at its zero value from its preset, and tools' kinds and effects from
// the defaults. It changes nothing that is set, shares d's slices where it leaves them as they are, and does not Check.
func (d Definition) Resolve() (Definition, error) {
	p, err := PresetDefaults(d.Preset)
	if err != nil {
		return Definition{}, fmt.Errorf("resolve definition %q: %w", d.Name, err)
	}
	d.Preset = p.Preset
	d.Model.Retry = d.Model.Retry.or(p.Model.Retry)
	d.Permission = d.Permission.or(p.Permission)
	d.Limits.Interactions = cmp.Or(d.Limits.Interactions, p.Limits.Interactions)
	d.Limits.OnLimit = cmp.Or(d.Limits.OnLimit, p.Limits.OnLimit)
	d.Batch = cmp.Or(d.Batch, p.Batch)
	d.Executor = cmp.Or(d.Executor, p.Executor)
	d.Wait = cmp.Or(d.Wait, p.Wait)
	d.Resume = cmp.Or(d.Resume, p.Resume)
	d.TextBesideCalls = cmp.Or(d.TextBesideCalls, p.TextBesideCalls)
	d.Early = cmp.Or(d.Early, p.Early)
	d.Output.Format = cmp.Or(d.Output.Format, p.Output.Format)
	d.Corrections = cmp.Or(d.Corrections, p.Corrections)
	d.Tools = resolveTools(d.Tools)
	return d, nil
}

func (r Retry) or(p Retry) Retry {
	return Retry{cmp.Or(r.Attempts, p.Attempts), cmp.Or(r.Backoff, p.Backoff), cmp.Or(r.MaxBackoff, p.MaxBackoff)}
}

func (p Permission) or(q Permission) Permission {
	p.Mode = cmp.Or(p.Mode, q.Mode)
	p.Default = cmp.Or(p.Default, q.Default)
	p.Expires = cmp.Or(p.Expires, q.Expires)
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
		t.Effect = cmp.Or(t.Effect, EffectNonIdempotent)
		resolved[i] = t
	}
	return resolved
}
