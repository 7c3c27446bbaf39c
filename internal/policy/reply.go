package policy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// PlanReply turns a model's reply into the event that is committed: calls chosen by the batch mode, unique ids,
// compacted arguments. requests counts all requests for the reply, failed ones included. systemDigest is stored if it
// is not empty. For a forced summary, calls are left out, and an empty text gets a placeholder. Judge decides whether
// the text is a valid output.
func PlanReply(d *agent.Definition, s *run.AgentState, r agent.Reply, requests int, systemDigest string) run.Replied {
	r, unread := parseTextCalls(d, s, r)
	e := planTurn(d, s, r, requests, systemDigest)
	e.Cost = d.Model.ChainModel(r.Place).Price.Of(r.Usage)
	e.Halt = haltAfterReply(d, s, e)
	if unread != nil {
		e.Correction = textCallCorrection(d, unread, JoinPieces(s, r.Text))
	}
	if r.Truncated {
		e = askToContinue(d, s, e)
	}
	e = withMemory(d, s, e)
	if len(e.Calls) == 0 && !e.Correction.Continues() {
		e.Text += cutNotice(d, JoinPieces(s, e.Text), e.Stop)
	}
	if e.Summary && e.Text == "" && d.Output.Format != agent.OutputJSON {
		e.Static = d.Word(agent.WordNoSummary, nil)
	}
	return e
}

// planTurn returns the reply as a turn of the conversation.
func planTurn(d *agent.Definition, s *run.AgentState, r agent.Reply, requests int, systemDigest string) run.Replied {
	summary := isForcedSummary(d, s)
	if summary {
		r.Calls = nil
		if strings.TrimSpace(r.Text) == "" {
			r.Text = ""
		}
	}
	e := run.Replied{
		Inference: s.Inferences + 1, Model: r.Model, Requests: requests, Usage: r.Usage,
		Units: r.Usage.Total(), Text: agent.ValidText(r.Text), Stop: r.StopReason, System: systemDigest, Summary: summary,
	}
	if !r.At.IsZero() {
		e.At = r.At.UnixMilli()
	}
	if len(r.Calls) == 0 {
		e.Reasoning = plannedReasoning(r.Reasoning, e.Text, nil)
		return e
	}
	if d.TextBesideCalls == agent.TextBesideDrop {
		e.Text, e.TextDropped = "", strings.TrimSpace(e.Text) != ""
	}
	mine := map[string]bool{}
	used := func(id string) bool { return mine[id] || s.UsedID(id, s.Prior+e.Inference) }
	kept := chooseCalls(d, r.Calls)
	for i, place := range kept {
		c := r.Calls[place]
		id := agent.CallID(c.ID, used, s.Prior+e.Inference, i)
		mine[id] = true
		e.Calls = append(e.Calls, PlannedCall(d, id, RepairCall(d.Model, r, c)))
	}
	markRepeats(d, s, e.Calls)
	e.Sequential = len(e.Calls) > 0 && d.Executor == agent.ExecutorSequential
	if d.Dropped == agent.DroppedNotify && len(kept) < len(r.Calls) {
		var left []agent.ReplyCall
		for i, c := range r.Calls {
			if !slices.Contains(kept, i) {
				left = append(left, c)
			}
		}
		e.Dropped = agent.TextDropped(d, left)
	}
	e.Reasoning = plannedReasoning(r.Reasoning, e.Text, kept)
	return e
}

// cutNotice returns the notice behind a text that its provider cut short (seed 000), "" otherwise. stop is the
// provider's word.
func cutNotice(d *agent.Definition, text, stop string) string {
	if d.CutText != agent.CutTextNotice || d.Output.Format == agent.OutputJSON {
		return ""
	}
	notice := ""
	switch stop {
	case "length", "max_tokens":
		notice = d.Word(agent.WordTruncated, nil)
	case "content_filter", "content_filtered", "guardrail_intervened":
		notice = d.Word(agent.WordFiltered, nil)
	}
	if notice != "" && text != "" {
		return "\n\n" + notice
	}
	return notice
}

// PlannedCall returns a call of a reply in the form of the stored event.
func PlannedCall(d *agent.Definition, id string, c agent.ReplyCall) run.RepliedCall {
	p := run.RepliedCall{ID: id, Name: agent.ValidText(c.Name), Input: safeInput(c.Input), Repaired: c.Repaired}
	if t, ok := d.ToolByModelName(c.Name); ok {
		p.Effect, p.Service, p.Breaks = t.Effect, t.AnsweredLater(), d.BreaksLoop(t.Name)
		p.Ahead = d.Preset == agent.PresetArvo && t.Kind == agent.KindMCP
	}
	if original := d.OriginalName(c.Name); original != c.Name {
		p.Tool = original
	}
	return p
}

// RepairCall returns a call of a reply with its JSON repaired, if ModelSpec.Repair says so. Arguments of a reply that
// was cut short, or that has no stop reason, are not repaired: a number might be incomplete. If the reply was cut
// before the arguments began, they become an empty text, which the gate refuses.
func RepairCall(m agent.ModelSpec, r agent.Reply, c agent.ReplyCall) agent.ReplyCall {
	cut := IsCutShort(r.StopReason)
	if cut && len(c.Input) == 0 {
		c.Input = json.RawMessage(`""`)
	}
	if m.Repair != agent.RepairOn || cut || r.StopReason == "" || len(c.Input) == 0 || agent.IsJSONObject(c.Input) {
		return c
	}
	if repaired := jsonx.RepairedInput(c.Input); repaired != nil {
		c.Input, c.Repaired = repaired, true
	}
	return c
}

// safeInput returns the model's arguments, compacted. Arguments that are not strict JSON become a JSON string, cut to 4
// KiB: the conversation stays well formed, the gate refuses the call, and the model sees what it sent.
func safeInput(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(`{}`)
	}
	if ok, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{}); err == nil {
		return ok
	}
	return agent.TextOutput(agent.ValidText(string(raw[:min(len(raw), 4096)])))
}

// chooseCalls returns the indexes of the calls that the batch mode carries out. The others leave no trace.
func chooseCalls(d *agent.Definition, calls []agent.ReplyCall) []int {
	if d.Batch == agent.BatchFirst {
		return []int{0}
	}
	var places []int
	top := 0
	for i, c := range calls {
		priority := 0
		if d.Batch == agent.BatchHighestPriority {
			t, _ := d.ToolByModelName(c.Name) // an unknown tool has priority 0
			priority = t.Priority
		}
		if i == 0 || priority > top {
			places, top = nil, priority
		}
		if priority == top {
			places = append(places, i)
		}
	}
	return places
}

// maxContinued is the longest text in bytes behind which a model is asked to go on: all pieces are one output.
const maxContinued = 128 << 10

// askToContinue asks the model to go on with a reply that the output limit cut short (presets 5), if the definition
// allows it and another inference is left. Otherwise the text stands as it is.
func askToContinue(d *agent.Definition, s *run.AgentState, e run.Replied) run.Replied {
	prompts := 0
	if s.Correction.Continues() {
		prompts = s.Cut.Prompts
	}
	if prompts >= d.Model.Continuations || len(JoinPieces(s, e.Text)) > maxContinued || len(e.Calls) > 0 || e.Summary ||
		e.Halt != nil || isLastInference(d, s, e) {
		return e
	}
	e.Correction = &run.Correction{Lifecycle: run.LifecycleNudge, Text: d.Word(agent.WordGoOn, nil)}
	return e
}

// isLastInference reports whether the limits leave no inference after a planned reply to s, except for a summary.
func isLastInference(d *agent.Definition, s *run.AgentState, e run.Replied) bool {
	after := *s
	after.Interactions.Current++
	after.Usage, after.Cost = s.Usage.Add(e.Usage), s.Cost.Add(e.Cost)
	return quotaUsed(d, &after)
}

// JoinPieces returns the text of a reply to s, joined to the pieces that it continues.
func JoinPieces(s *run.AgentState, text string) string {
	if !s.Correction.Continues() {
		return text
	}
	return replyPieces(s) + text
}

// spoken returns the text of a planned reply to s, joined to the pieces that it continues, without thinking.
func spoken(d *agent.Definition, s *run.AgentState, e run.Replied) string {
	return Spoken(d, JoinPieces(s, e.Text))
}

// Judge checks whether a planned reply to s may end the run, and adds a correction if it may not. Replies with calls,
// and replies that are to be continued, do not end a run and are not checked. valid checks a value against the
// definition's output schema; its error is for the model.
func Judge(d *agent.Definition, s *run.AgentState, e run.Replied, valid func(value json.RawMessage) error) run.Replied {
	if len(e.Calls) > 0 || e.Correction != nil {
		return e
	}
	switch {
	case d.Text == agent.TextRequireTool && !e.Summary: // only a tool ends the run; a summary has none
		e.Correction = d.Refused(KindNoToolCall, "",
			d.Word(agent.WordNoToolCall, map[string]any{"Format": CallFormat(d)}))
		e = withMemory(d, s, e)
	case d.Output.Format == agent.OutputJSON: // the heuristic does not apply, because a value may contain any words
		e = judgeOutput(d, s, e, valid)
	case d.Text == agent.TextHeuristic:
		if e = judgeEmptyReply(d, s, e); e.Correction == nil {
			e = judgeText(d, s, e)
		}
	}
	return e
}

// StopInterrupted is the StopReason of a reply whose stream broke off.
const StopInterrupted = "interrupted"

// IsCutShort reports whether a stop reason means that a reply is not whole: the model refused to answer, a filter
// stopped it, it reached its longest output or the end of the context window, or its stream broke off.
func IsCutShort(stop string) bool {
	return slices.Contains([]string{"refusal", "content_filter", "content_filtered", "guardrail_intervened", "length",
		"max_tokens", "model_length", "model_context_window_exceeded", StopInterrupted}, stop)
}

// KeepInterrupted returns what is kept of a reply whose stream broke off: its text, and the calls whose arguments are
// complete JSON objects. nil means that nothing is usable. Usage is what the provider had reported by then.
func KeepInterrupted(r agent.Reply) *agent.Reply {
	whole := make([]int, 0, len(r.Calls)) // the places of the calls that are kept
	var calls []agent.ReplyCall
	for i, c := range r.Calls {
		if c.Name == "" || !agent.IsJSONObject(c.Input) {
			continue
		}
		whole, calls = append(whole, i), append(calls, c)
	}
	if len(calls) == 0 && strings.TrimSpace(r.Text) == "" {
		return nil
	}
	r.Calls, r.Reasoning = calls, slices.Clone(r.Reasoning)
	for i, b := range r.Reasoning { // behind so many of the calls that are kept
		r.Reasoning[i].AfterCalls, _ = slices.BinarySearch(whole, b.AfterCalls)
	}
	r.StopReason, r.Truncated = StopInterrupted, false
	return &r
}

// parseTextCalls returns a reply to s in the form that PlanReply takes. For a model that writes calls as text, the
// first pair of tool tags is its call, and its thinking is its reasoning. A text without a valid call is unchanged; if
// it has a tool tag, the second result says what is wrong. A reply that has calls is unchanged.
func parseTextCalls(d *agent.Definition, s *run.AgentState, r agent.Reply) (agent.Reply, *TextCallError) {
	if d.Model.ChainModel(r.Place).Dialect != agent.DialectXML || len(r.Calls) > 0 {
		return r, nil
	}
	r.Text = agent.ValidText(r.Text)
	said := ReadToolText(r.Text)
	if isForcedSummary(d, s) {
		return said.Reply(r), nil
	}
	whole, pieces := said, ""
	if s.Correction.Continues() {
		pieces = replyPieces(s)
		whole = ReadToolText(pieces + r.Text)
	}
	if !whole.Called {
		return r, nil
	}
	call, err := whole.Call(d.XML.MissingServer)
	if problem, ok := errors.AsType[*TextCallError](err); ok {
		return r, problem
	}
	before := len(pieces)
	if r = said.Reply(r); before > 0 && !said.Called { // the tag is in an earlier piece
		r.Text, r.Reasoning = "", nil
	}
	r.Calls = []agent.ReplyCall{Call(d, call)}
	return r, nil
}

// maxReasoning is the maximum size of a reply's stored reasoning in bytes, so that its entry can be stored.
const maxReasoning = 192 << 10

// plannedReasoning places a reply's reasoning among its text and the calls that are kept; kept has the indexes of those
// calls in the reply. Blocks that are not valid text are left out. If the reasoning is too large, all of it is left
// out: providers refuse reasoning that is changed or incomplete.
func plannedReasoning(all []run.RepliedReasoning, text string, kept []int) []run.RepliedReasoning {
	var out []run.RepliedReasoning
	said, asked, size := 0, 0, 0
	for _, r := range all {
		texts := []string{r.Text, r.Signature, r.Provider, r.Model, r.Field}
		if r.Empty() || slices.ContainsFunc(texts, func(t string) bool { return !utf8.ValidString(t) }) {
			continue
		}
		size += jsonx.StoredLen(r.Text) + jsonx.StoredLen(r.Signature) + base64.StdEncoding.EncodedLen(len(r.Redacted))
		if size > maxReasoning {
			return nil
		}
		said, asked = max(said, RuneStart(text, r.AfterText)), max(asked, sort.SearchInts(kept, r.AfterCalls))
		if asked > 0 || r.AfterCalls > 0 { // all text comes before the calls, even before one that is dropped
			said = len(text)
		}
		r.AfterText, r.AfterCalls = said, asked
		out = append(out, r)
	}
	return out
}

// RuneStart returns n, or the nearest index before it at which a rune starts.
func RuneStart(text string, n int) int {
	n = min(max(n, 0), len(text))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
