package agentfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// definition reads a whole file over its preset's values.
func (r *reader) definition(f field) agent.Definition {
	d := r.preset(f)
	static := d.Model.StaticText
	r.mapping(f, map[string]read{
		"preset":  func(f field) { f.describe(object{"enum": presets}) }, // read first
		"name":    r.text(&d.Name),
		"version": r.text(&d.Version),
		"system":  r.text(&d.System),
		"model":   r.model(&d.Model),
		"tools": func(f field) {
			r.list(f, func(item field) { d.Tools = append(d.Tools, r.tool(item, map[string]read{})) })
		},
		"mcp": func(f field) {
			r.list(f, func(item field) { d.MCP = append(d.MCP, r.server(item)) })
		},
		"permission": r.permission(&d),
		"limits":     r.limits(&d.Limits),
		"batch":      enum(r, &d.Batch, []agent.BatchMode{agent.BatchAll, agent.BatchHighestPriority, agent.BatchFirst}),
		"executor": enum(r, &d.Executor, []agent.Executor{agent.ExecutorSequential, agent.ExecutorParallelBatch,
			agent.ExecutorParallelStreaming}),
		"resume":          enum(r, &d.Resume, []run.ResumeMode{run.ResumeEach, run.ResumeAllAnswered, run.ResumeBatchAll}),
		"wait":            enum(r, &d.Wait, []run.WaitMode{run.WaitAnyExternal, run.WaitAllSuspended}),
		"textBesideCalls": enum(r, &d.TextBesideCalls, []agent.TextBeside{agent.TextBesideKeep, agent.TextBesideDrop}),
		"corrections": enum(r, &d.Corrections,
			[]agent.CorrectionMode{agent.CorrectionsPersist, agent.CorrectionsEphemeral}),
		"systemPrompt": enum(r, &d.SystemPrompt, []agent.SystemPrompt{agent.SystemOnce, agent.SystemEveryInference}),
		"dropped":      enum(r, &d.Dropped, []agent.Dropped{agent.DroppedSilent, agent.DroppedNotify}),
		"context":      r.context(&d.Context),
		"cutText":      enum(r, &d.CutText, []agent.CutText{agent.CutTextPlain, agent.CutTextNotice}),
		"builder":      r.codeName(&d.Builder, "context builder", r.opt.Hooks.BuilderNames()),
		"input":        r.keys(map[string]read{"schema": r.anySchema(&d.Input.Schema)}),
		"output": r.keys(map[string]read{
			"format":  enum(r, &d.Output.Format, []agent.OutputKind{agent.OutputText, agent.OutputJSON}),
			"schema":  r.anySchema(&d.Output.Schema),
			"history": r.boolean(&d.Output.History),
			"check":   r.codeName(&d.Output.Check, "output check", r.opt.Hooks.OutputNames()),
		}),
		"stop":     r.stop(&d.Stop),
		"plugins":  r.plugins(&d.Plugins),
		"text":     enum(r, &d.Text, []agent.TextPolicy{agent.TextFinal, agent.TextHeuristic, agent.TextRequireTool}),
		"analysis": r.analysis(&d.Analysis),
		"guards": r.keys(map[string]read{
			"duplicateCalls": r.boolean(&d.Guards.DuplicateCalls),
			"failedRounds":   r.whole(&d.Guards.FailedRounds),
			"toolFailures":   r.whole(&d.Guards.ToolFailures),
		}),
		"xml": r.keys(map[string]read{
			"missingServer": enum(r, &d.XML.MissingServer, []agent.MissingServer{
				agent.MissingServerError, agent.MissingServerLocal,
			}),
			"breaker": r.whole(&d.XML.Breaker),
			"disable": r.names(&d.XML.Disable),
		}),
		"prompt":       r.prompt(&d.Prompt),
		"orchestrator": r.orchestrator(&d.Orchestrator),
		"prefilter":    r.prefilter(&d.Prefilter),
		"wording":      r.textsByKey(&d.Wording),
	})
	if d.Output.Format == agent.OutputJSON && d.Model.StaticText == static { // a preset's words are no JSON value
		d.Model.StaticText = ""
	}
	return d
}

// preset is the base the file's keys are laid over. A preset that is refused leaves countersign's, so that the rest of
// the file can still be read.
func (r *reader) preset(f field) agent.Definition {
	preset := agent.PresetCountersign
	if p, ok := f.member("preset"); ok {
		enum(r, &preset, presets)(p)
	}
	d, err := agent.PresetDefaults(preset)
	if err != nil {
		r.add("preset", err.Error())
	}
	return d
}

func (r *reader) model(m *agent.ModelSpec) read {
	return r.keys(map[string]read{
		"fallbacks": func(f field) {
			if !f.describe(object{"type": "array", "items": object{"$ref": "#/properties/model"}}) {
				each(r, &m.Fallbacks, r.model)(f)
			}
		},
		"staticText": r.text(&m.StaticText),
		"price":      r.price(&m.Price),
		"timeout":    r.duration(&m.Timeout),

		"continuations": r.whole(&m.Continuations),

		"moveOn":    r.classes(&m.MoveOn),
		"cutStream": enum(r, &m.CutStream, []agent.CutStream{agent.CutStreamFail, agent.CutStreamKeep}),
		"repair":    enum(r, &m.Repair, []agent.Repair{agent.RepairOff, agent.RepairOn}),
		"busy":      enum(r, &m.Busy, []agent.Busy{agent.BusyWait, agent.BusyFail}),

		"provider":    enum(r, &m.Provider, []string{"bedrock", "openai", "script", "demo"}),
		"id":          r.text(&m.ID),
		"baseURL":     r.text(&m.BaseURL),
		"key":         r.text(&m.Key),
		"file":        r.text(&m.File),
		"maxTokens":   r.whole(&m.MaxTokens),
		"temperature": r.temperature(&m.Temperature),
		"cache":       enum(r, &m.Cache, []agent.Cache{agent.CacheOff, agent.CacheFiveMinutes, agent.CacheOneHour}),
		"options":     r.raw(&m.Options),
		"retry": r.keys(map[string]read{
			"attempts":   r.whole(&m.Retry.Attempts),
			"backoff":    r.duration(&m.Retry.Backoff),
			"maxBackoff": r.duration(&m.Retry.MaxBackoff),
			"window":     r.duration(&m.Retry.Window),
			"jitter":     r.whole(&m.Retry.Jitter),
			"on":         r.classes(&m.Retry.On),
		}),
		"dialect": enum(r, &m.Dialect, []agent.Dialect{agent.DialectNative, agent.DialectXML}),
	})
}

// classes reads a list of classes of model errors. An empty one is none of them, and not what the preset has.
func (r *reader) classes(dst *[]agent.ModelErrorClass) read {
	return func(f field) {
		*dst = []agent.ModelErrorClass{}
		each(r, dst, func(c *agent.ModelErrorClass) read { return enum(r, c, agent.ModelErrorClasses()) })(f)
	}
}

// price reads what a model costs. Input and output have to be there; 0 is a price.
func (r *reader) price(dst **agent.Price) read {
	return func(f field) {
		var p agent.Price
		r.mapping(f, map[string]read{
			"input": r.usd(&p.Input), "output": r.usd(&p.Output),
			"cacheRead":  func(f field) { p.CacheRead = new(run.USD); r.usd(p.CacheRead)(f) },
			"cacheWrite": func(f field) { p.CacheWrite = new(run.USD); r.usd(p.CacheWrite)(f) },
		})
		for _, key := range []string{"input", "output"} {
			if _, ok := f.member(key); !ok && f.kind == kindMapping {
				r.add(join(f.path, key), "got nothing, want USD a million tokens")
			}
		}
		f.describe(object{"required": []string{"input", "output"}})
		*dst = &p
	}
}

func (r *reader) stop(s *agent.Stop) read {
	return r.keys(map[string]read{
		"rounds":            r.whole(&s.Rounds),
		"timeout":           r.duration(&s.Timeout),
		"tokens":            r.count(&s.Tokens),
		"consecutiveErrors": r.whole(&s.ConsecutiveErrors),
		"onTool":            r.names(&s.OnTool),
		"contains":          r.text(&s.Contains),
		"loopWindow":        r.whole(&s.LoopWindow),
	})
}

func (r *reader) limits(l *agent.Limits) read {
	return r.keys(map[string]read{
		"interactions": r.whole(&l.Interactions),
		"grace":        r.whole(&l.Grace),
		"onLimit":      enum(r, &l.OnLimit, []agent.OnLimit{agent.OnLimitError, agent.OnLimitStop, agent.OnLimitSummarise}),
		"validators":   enum(r, &l.Validators, []agent.Validators{agent.ValidatorsAlways, agent.ValidatorsNotExhausted}),
		"tokens":       r.count(&l.Tokens),
		"usd":          r.usd(&l.USD),
		"asks":         r.whole(&l.Asks),
		"parallel":     r.whole(&l.Parallel),
		"depth":        r.whole(&l.Depth),
		"children":     r.whole(&l.Children),
		"open":         r.whole(&l.Open),
	})
}

// anySchema reads a schema, or null for none. What is wrong with it as a schema is told here: the core checks its
// form alone.
func (r *reader) anySchema(dst *json.RawMessage) read {
	return func(f field) {
		switch f.kind {
		case kindSchema:
			f.describe(object{"type": []string{"object", "null"}})
			return
		case kindNull:
			return
		case kindMapping:
		default:
			r.addWrongType(f, "a JSON Schema, a mapping")
			return
		}
		*dst = f.json()
		if _, err := tool.Compile(*dst); err != nil {
			r.add(f.path, err.Error())
		}
	}
}

func (r *reader) permission(d *agent.Definition) read {
	return func(f field) {
		p := &d.Permission
		r.mapping(f, map[string]read{
			"mode": enum(r, &p.Mode, []agent.PermissionMode{agent.ModeSuspendAndReplay, agent.ModeBlockAndRetry,
				agent.ModeAdvisory}),
			"default": enum(r, &p.Default, []agent.PermissionDefault{agent.DefaultByEffect, agent.DefaultAllow, agent.DefaultAsk,
				agent.DefaultDeny}),
			"scope":  enum(r, &p.Scope, []agent.Scope{agent.ScopeCall, agent.ScopeTool}),
			"grants": enum(r, &p.Grants, []agent.Grants{agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding}),
			"standing": r.keys(map[string]read{ // how far standing grants go at most
				"uses": r.whole(&p.Bounds.Uses), "expires": r.duration(&p.Bounds.Expires),
				"when": r.conditions(&p.Bounds.When), "pattern": r.boolean(&p.Bounds.Pattern),
			}),
			"approvers": r.texts(&p.Approvers),
			"rules":     r.rules(&p.Rules),
			"early":     enum(r, &d.Early, []agent.EarlyDecision{agent.EarlyKeep, agent.EarlyRefuse}),

			"approvalTool": r.text(&p.ApprovalTool),
			"backend":      r.codeName(&p.Backend, "permission backend", r.opt.Hooks.BackendNames()),
			"policy":       r.codeName(&p.Policy, "policy function", r.opt.Hooks.PolicyNames()),
		})
	}
}

// codeName reads the name of registered code.
func (r *reader) codeName(dst *string, what string, known []string) read {
	return func(f field) {
		r.text(dst)(f)
		if *dst == "" || slices.Contains(known, *dst) {
			return
		}
		r.add(f.path, fmt.Sprintf("got %.64q, want a registered %s: %s", *dst, what,
			cmp.Or(strings.Join(known, ", "), "there is none")))
	}
}

func (r *reader) rules(dst *[]agent.Rule) read {
	return func(f field) {
		r.list(f, func(item field) {
			var rule agent.Rule
			r.mapping(item, map[string]read{
				"tool":      r.text(&rule.Tool),
				"when":      r.conditions(&rule.When),
				"verdict":   enum(r, &rule.Verdict, []agent.Verdict{agent.VerdictAllow, agent.VerdictAsk, agent.VerdictDeny}),
				"approvers": r.texts(&rule.Approvers),
				"expires":   r.duration(&rule.Expires),
				"note":      r.text(&rule.Note),
				"quorum":    r.approverCount(&rule.Quorum),
				"fourEyes":  r.boolean(&rule.FourEyes),
				"remind":    r.positiveDuration(&rule.Remind),
				"escalate":  r.escalation(&rule.Escalate),
				"via":       each(r, &rule.Via, func(v *run.Via) read { return enum(r, v, run.Vias()) }),
				"confirm":   enum(r, &rule.Confirm, run.Confirms()),
			})
			*dst = append(*dst, rule)
		})
	}
}

// approverCount reads a number of people. The default is one.
func (r *reader) approverCount(dst *int) read {
	return func(f field) {
		r.whole(dst)(f)
		if f.kind == kindNumber && *dst == 0 {
			r.add(f.path, fmt.Sprintf("got 0, want 1 to %d people", agent.MaxQuorum))
		}
	}
}

// positiveDuration reads a duration greater than zero.
func (r *reader) positiveDuration(dst *time.Duration) read {
	return func(f field) {
		before := len(r.problems)
		if r.duration(dst)(f); *dst == 0 && len(r.problems) == before {
			r.add(f.path, "got no time at all, want a duration of more than zero")
		}
	}
}

// escalation reads who else is asked, and when. That both are there is for CheckPermission to say.
func (r *reader) escalation(dst **agent.Escalation) read {
	return func(f field) {
		e := &agent.Escalation{}
		if r.mapping(f, map[string]read{"after": r.positiveDuration(&e.After), "to": r.texts(&e.To)}); f.kind == kindMapping {
			*dst = e
		}
	}
}

func (r *reader) conditions(dst *[]run.Condition) read {
	return each(r, dst, func(c *run.Condition) read {
		return r.keys(map[string]read{
			"path": r.text(&c.Path),
			"eq":   r.raw(&c.Eq), "ne": r.raw(&c.Ne),
			"gt": r.raw(&c.Gt), "gte": r.raw(&c.Gte), "lt": r.raw(&c.Lt), "lte": r.raw(&c.Lte),
			"in":      each(r, &c.In, r.raw),
			"matches": r.text(&c.Matches),
		})
	})
}

// plugins reads a list of names, each alone or with the plugin's configuration.
func (r *reader) plugins(dst *[]agent.PluginSpec) read {
	return func(f field) {
		r.list(f, func(item field) {
			p, ok := r.plugin(item)
			if !ok {
				return
			}
			*dst = append(*dst, p)
			if p.Name == "" {
				return // which the core says
			}
			if err := r.opt.Hooks.CheckPlugin(p); err != nil {
				r.add(item.path, err.Error())
			}
		})
	}
}

func (r *reader) plugin(f field) (p agent.PluginSpec, ok bool) {
	keys := map[string]read{"name": r.text(&p.Name), "config": r.raw(&p.Config)}
	switch f.kind {
	case kindSchema:
		whole := schemaField(f.path)
		r.mapping(whole, keys)
		f.describe(object{"anyOf": []object{{"type": "string"}, whole.schema}})
		return p, false
	case kindString:
		return agent.PluginSpec{Name: f.node.text}, true
	case kindMapping:
		r.mapping(f, keys)
		return p, true
	default:
		r.addWrongType(f, "a plugin's name, or a mapping of name and config")
		return p, false
	}
}
