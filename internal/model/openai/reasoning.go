package openai

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// The names under which servers send what they want back: reasoning as text, lists of reasoning with proofs of it, and
// with a call what they alone can read.
const (
	fieldReasoningContent = "reasoning_content"
	fieldReasoning        = "reasoning"
	fieldDetails          = "reasoning_details" // OpenRouter's
	fieldBlocks           = "thinking_blocks"   // LiteLLM's
	fieldExtra            = "extra_content"
)

// addReasoning takes reasoning, and the name it came by; thoughts among the parts of a content have none to go back
// under.
func (a *assembly) addReasoning(p piece) {
	thought := p.Content.thought
	switch {
	case p.ReasoningContent.is != "":
		thought, a.field = p.ReasoningContent.is, fieldReasoningContent
	case p.Reasoning.is != "":
		thought, a.field = p.Reasoning.is, fieldReasoning
	}
	a.reason.WriteString(thought)
	a.addText(agent.DeltaReasoning, thought)
	a.details = addDetails(a.details, p.Details.is)
	a.blocks = addDetails(a.blocks, p.Blocks.is)
}

// detail is an entry of a list of reasoning under way. Its text, which comes in pieces, stands under the key.
type detail struct {
	fields map[string]json.RawMessage
	key    string // "" = the entry comes whole
	text   strings.Builder
}

// textKeys are where the entries of each type have their text.
var textKeys = map[string]string{"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}

func addDetails(all []*detail, more entries) []*detail {
	for _, fields := range more {
		d := &detail{fields: fields, key: textKeys[scalarText(fields["type"])]}
		if last := len(all) - 1; last >= 0 && d.key != "" && all[last].key == d.key && !all[last].proved() &&
			string(all[last].fields["index"]) == string(fields["index"]) {
			d = all[last]
		} else {
			all = append(all, d)
		}
		d.text.WriteString(scalarText(fields[d.key]))
		for key, value := range fields {
			if text, isText := jsonx.JSONString(value); key != d.key && string(value) != "null" && (text != "" || !isText) {
				d.fields[key] = value
			}
		}
	}
	return all
}

// proved reports whether the entry has what its server alone can read.
func (d *detail) proved() bool {
	return scalarText(d.fields["signature"]) != "" || scalarText(d.fields["data"]) != ""
}

// reasoning is what goes back to the model. A list that proves nothing says no more than the text.
func (a *assembly) reasoning() (all []run.RepliedReasoning) {
	if a.reason.Len() > 0 {
		thought := a.thought()
		thought.Text, thought.Field = a.reason.String(), a.field
		all = append(all, run.RepliedReasoning{Reasoning: thought})
	}
	for _, of := range []struct {
		field string
		list  []*detail
	}{{fieldDetails, a.details}, {fieldBlocks, a.blocks}} {
		if !slices.ContainsFunc(of.list, (*detail).proved) {
			continue
		}
		whole := make([]map[string]json.RawMessage, len(of.list))
		for i, d := range of.list {
			if whole[i] = d.fields; d.key != "" {
				whole[i][d.key], _ = jsonx.MarshalVerbatim(d.text.String()) // a text is always JSON
			}
		}
		thought := a.thought()
		thought.Redacted, _ = jsonx.MarshalVerbatim(whole) // which was read from JSON
		thought.Field = of.field
		all = append(all, run.RepliedReasoning{Reasoning: thought})
	}
	return all
}

// thought is reasoning of the model that was asked, whatever name it answers by: to that one it goes back.
func (a *assembly) thought() run.Reasoning {
	return run.Reasoning{Provider: provider, Model: a.asked.Model.ID}
}

// reasoningAlone are hosts that refuse reasoning under any name but that one.
var reasoningAlone = []string{"groq.com", "cerebras.ai"}

// moonshot are the hosts of Kimi's maker.
var moonshot = []string{"moonshot.ai", "moonshot.cn", "kimi.com"}

// wantsReasoning reports whether the server may refuse a turn without reasoning_content: DeepSeek's and Kimi's models
// do while they think, and one that has sent it in this conversation may be such a model.
func (g *grouping) wantsReasoning(messages []run.Message) bool {
	base, id := g.model.BaseURL, strings.ToLower(g.model.ID)
	switch {
	case g.mistral, isHostedAt(base, reasoningAlone...):
		return false
	case strings.Contains(id, "deepseek"), strings.Contains(id, "kimi"):
		others := []string{"deepseek.com", "openrouter.ai", "siliconflow.cn", "siliconflow.com"}
		if isHostedAt(base, append(others, moonshot...)...) {
			return true
		}
	}
	return slices.ContainsFunc(messages, func(m run.Message) bool {
		b, ok := m.Block.(run.Reasoning)
		return ok && b.Provider == provider && b.Model == g.model.ID && b.Field == fieldReasoningContent
	})
}

// addPlaceholders completes a turn that another model wrote, or that has no reasoning. DeepSeek and Kimi get a blank,
// because they refuse an empty text. Gemini gets the signature that it documents for calls it did not make.
func (g *grouping) addPlaceholders() {
	if g.thinks && g.turn.ReasoningContent == "" && g.turn.Reasoning == "" {
		g.turn.ReasoningContent = " "
	}
	id := g.model.ID
	signs := strings.Contains(id, "gemini-") && !strings.Contains(id, "gemini-1") && !strings.Contains(id, "gemini-2") &&
		isHostedAt(g.model.BaseURL, "googleapis.com")
	if signed := func(c chatCall) bool { return c.Extra != nil }; signs && len(g.turn.ToolCalls) > 0 &&
		!slices.ContainsFunc(g.turn.ToolCalls, signed) {
		g.turn.ToolCalls[0].Extra =
			json.RawMessage(`{"google":{"thought_signature":"skip_thought_signature_validator"}}`)
	}
}
