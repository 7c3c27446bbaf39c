package agentfile

import (
	"github.com/countersign/countersign/internal/agent"
)

// context reads how much of the conversation a request holds.
func (r *reader) context(c *agent.Context) read {
	return r.keys(map[string]read{
		"mask":   r.boolean(&c.Mask),
		"window": r.whole(&c.Window),
		"reserve": r.keys(map[string]read{
			"system": r.measured(&c.Reserve.System),
			"tools":  r.measured(&c.Reserve.Tools),
			"active": r.whole(&c.Reserve.Active),
			"output": r.whole(&c.Reserve.Output),
			"safety": r.whole(&c.Reserve.Safety),
		}),
		"evictBelow":     r.whole(&c.EvictBelow),
		"roundMinimum":   r.whole(&c.RoundMinimum),
		"keep":           r.whole(&c.Keep),
		"summaryTokens":  r.whole(&c.Summary),
		"summary":        enum(r, &c.SummaryBy, []agent.SummaryKind{agent.SummaryMechanical, agent.SummaryModel}),
		"truncateResult": r.whole(&c.TruncateResult),
		"keepWhole":      r.boolean(&c.KeepWhole),
		"compressAfter":  r.whole(&c.CompressAfter),
		"prune":          r.whole(&c.Prune),
	})
}

// measured reads a number of tokens, or the word that has them counted.
func (r *reader) measured(dst **int) read {
	return func(f field) {
		switch {
		case f.describe(object{"anyOf": []object{{"type": "integer"}, {"const": "measured"}}}):
		case f.kind == kindString && f.node.text == "measured":
			*dst = nil
		case f.kind == kindNumber:
			*dst = new(int)
			r.whole(*dst)(f)
		default:
			r.addWrongType(f, "a whole number or measured")
		}
	}
}

func (r *reader) analysis(a *agent.Analysis) read {
	return r.keys(map[string]read{
		"incomplete":        r.names(&a.Incomplete),
		"completion":        r.names(&a.Completion),
		"deflection":        r.names(&a.Deflection),
		"deflectionRetries": r.whole(&a.DeflectionRetries),
		"emptyReplies":      r.whole(&a.EmptyReplies),
		"trustGate":         r.whole(&a.TrustGate),
	})
}

func (r *reader) prompt(p *agent.Prompt) read {
	return r.keys(map[string]read{
		"order":    enum(r, &p.Order, []agent.PromptOrder{agent.PromptSeed, agent.PromptCode}),
		"sections": r.textsByKey(&p.Sections),
		"planning": r.codeName(&p.Planning, "context source", r.opt.Hooks.ContextNames()),
		"rag":      r.codeName(&p.RAG, "context source", r.opt.Hooks.ContextNames()),
	})
}

func (r *reader) orchestrator(o *agent.Orchestrator) read {
	return r.keys(map[string]read{
		"enabled":  r.boolean(&o.Enabled),
		"planner":  r.otherModel(&o.Planner),
		"router":   r.otherModel(&o.Router),
		"topK":     r.whole(&o.TopK),
		"maxSteps": r.whole(&o.MaxSteps),
		"retries":  r.whole(&o.Retries),
	})
}

// otherModel reads a model beside the agent's own; one attempt where nothing is said.
func (r *reader) otherModel(dst **agent.ModelSpec) read {
	return func(f field) {
		*dst = &agent.ModelSpec{Retry: agent.Retry{Attempts: 1}}
		r.model(*dst)(f)
	}
}

func (r *reader) prefilter(p *agent.Prefilter) read {
	return r.keys(map[string]read{
		"topK": r.whole(&p.TopK),
		"embeddings": r.keys(map[string]read{
			"provider": enum(r, &p.Embeddings.Provider, []agent.EmbeddingProvider{
				agent.EmbeddingsBM25, agent.EmbeddingsOpenAI, agent.EmbeddingsBedrock,
			}),
			"id": r.text(&p.Embeddings.ID), "baseURL": r.text(&p.Embeddings.BaseURL), "key": r.text(&p.Embeddings.Key),
		}),
	})
}

// textsByKey reads a mapping of texts; which keys there are, Check says.
func (r *reader) textsByKey(dst *map[string]string) read {
	return func(f field) {
		if f.describe(object{"type": "object", "additionalProperties": object{"type": "string"}}) {
			return
		}
		if f.kind != kindMapping {
			r.addWrongType(f, "a mapping of texts")
			return
		}
		for _, m := range f.members {
			var text string
			r.text(&text)(f.child(m))
			if *dst == nil {
				*dst = map[string]string{}
			}
			(*dst)[m.key] = text
		}
	}
}
