package prompt

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// MakeRoom returns the events that must be committed before, or with, the reply to the request of action a so that the
// request fits: messages that prune or the window evict, and that too little room is left even then (presets 6). Far
// from the window's end there are none. The budget is that of the request after the events.
func MakeRoom(d *agent.Definition, s *run.AgentState, a policy.Action, m Measured) ([]run.Event, Budget) {
	x, g := d.Context, newGauge(d, s, a, m)
	after := *s
	var facts []run.Event
	leave := func(e run.Evicted) {
		if e.Total <= after.EvictedMessages {
			return
		}
		after.Evict(e)
		if x.Window > 0 { // the provider's count beyond the estimate stays as it was
			g.budget = g.read(&after)
		}
		facts = append(facts, e)
	}
	if x.Prune > 0 {
		// the newest messages stay until one does not fit, the system text included (seed 004)
		tokens := func(message run.Message) int { return messageBytes(message, m.Bodies) / pruneBytes }
		oldest := policy.NewestWithin(x.Prune-len(m.System)/pruneBytes, after.Messages.All(), tokens)
		leave(evict(&after, d, oldest, 0, m.Bodies))
	}
	if x.Window > 0 && g.budget.Remaining < x.EvictBelow {
		leave(evict(&after, d, after.Messages.Len()-x.Keep, x.Summary, m.Bodies))
	}
	// another round does not fit; the model is asked for a summary all the same
	if x.Window > 0 && a.Lifecycle != run.LifecycleSummary && g.budget.Remaining < x.RoundMinimum {
		facts = append(facts, run.ContextFull{Left: g.budget.Remaining, Of: g.budget.Window})
	}
	return facts, g.budget
}

// NeedsCount reports whether a provider's own count could change what MakeRoom does, because the next threshold is
// close: nearer than half of what is only estimated. A definition with a fixed term needs none, as providers count
// whole requests.
func NeedsCount(d *agent.Definition, s *run.AgentState, a policy.Action, m Measured) bool {
	g := newGauge(d, s, a, m)
	if d.Context.Window == 0 || !d.Context.Measured() || g.exact || a.Lifecycle == run.LifecycleSummary {
		return false
	}
	near := func(threshold int) bool {
		distance := g.budget.Remaining - threshold
		return threshold > 0 && max(distance, -distance) <= g.guess/2
	}
	return near(d.Context.EvictBelow) || near(d.Context.RoundMinimum)
}

// pruneBytes is the number of bytes of a token as seed 004 counts.
const pruneBytes = 4

// messageBytes returns the length of a message as seed 004 counts it. Media count as their tokens.
func messageBytes(m run.Message, bodies map[string][]byte) int {
	switch b := m.Block.(type) {
	case run.Text:
		return len(b.Text)
	case run.Reasoning:
		return len(b.Text) + len(b.Signature) + len(b.Redacted)
	case run.Media:
		return pruneBytes * mediaTokens(b)
	case run.ToolUse:
		return len(b.Name) + len(b.Input)
	case run.ToolResult:
		return resultSize(b, bodies)
	default:
		return 0
	}
}

// evict evicts the oldest messages, in whole rounds. With a summary of more than 0 tokens, each evicted message adds a
// line to it.
func evict(s *run.AgentState, d *agent.Definition, oldest, summary int, bodies map[string][]byte) run.Evicted {
	n := evictionCount(s, oldest)
	e := run.Evicted{Total: s.EvictedMessages + int64(n), Summary: s.Summary, Files: s.Files}
	if n == 0 || summary == 0 {
		return e
	}
	left := s.Messages.All()[:n]
	lines := append(strings.Split(s.Summary, "\n"), summaryLines(d, left, bodies)...)
	if s.Summary == "" {
		lines = lines[1:]
	}
	e.Summary = tailOf(strings.Join(lines, "\n"), summary, d.Word(agent.WordOmitted, nil))
	e.Files = addFiles(s.Files, left, summary)
	return e
}

// evictionCount returns how many of the oldest messages are evicted if about want should be. It is more where a round,
// turn or result would be split, and fewer where messages must stay: those that no inference has carried, and an open
// call with what follows it.
func evictionCount(s *run.AgentState, want int) int {
	free := evictableCount(s)
	if want <= 0 || free == 0 {
		return 0
	}
	all, results := s.Messages.All(), map[string]int{}
	for i, m := range all {
		if r, ok := m.Block.(run.ToolResult); ok {
			results[r.ID] = i
		}
	}
	best, whole := 0, 0
	for i := range free {
		whole = max(whole, groupEnd(all, i, results))
		if whole > i+1 {
			continue
		}
		if best = i + 1; best >= want {
			break
		}
	}
	return best
}

// evictableCount returns how many of the oldest messages may be evicted, without regard to rounds and turns.
func evictableCount(s *run.AgentState) int {
	all := s.Messages.All()
	if !s.WithPlaceholders() && slices.ContainsFunc(s.Live, run.Call.Open) {
		return 0
	}
	n := slices.IndexFunc(all, func(m run.Message) bool { return m.Seen(s.Inferences) <= 0 })
	if n < 0 {
		n = max(0, len(all)-1) // no request is empty
	}
	if s.Correction.Continues() { // the reply that the model goes on with
		n = min(n, int(max(0, s.Cut.From-s.EvictedMessages)))
	}
	return n
}

// groupEnd returns the index behind the messages that are evicted together with message i: its turn, or a call's result
// and its media.
func groupEnd(all []run.Message, i int, results map[string]int) int {
	end := i + 1
	if all[i].Role == run.RoleAssistant && end < len(all) && all[end].Role == run.RoleAssistant &&
		all[end].Source.SameEvent(all[i].Source) {
		end++
	}
	switch b := all[i].Block.(type) {
	case run.ToolUse:
		at, settled := results[b.ID]
		if !settled {
			return len(all) + 1 // it is open
		}
		end = max(end, at+1)
	case run.ToolResult, run.Media:
		end = max(end, policy.ResultEnd(all, i))
	}
	return end
}

// The length of what a line quotes, in bytes (presets 6).
const (
	maxSummaryLine = 80
	maxResultLine  = 60
)

// summaryLines returns a line for each message with content, and one for the calls of a turn.
func summaryLines(d *agent.Definition, left []run.Message, bodies map[string][]byte) []string {
	var lines []string
	for i := 0; i < len(left); i++ {
		m := left[i]
		switch b := m.Block.(type) {
		case run.Text:
			lines = append(lines, "- "+string(m.Role)+": "+oneLine(b.Text, maxSummaryLine))
		case run.Media:
			lines = append(lines, "- "+string(m.Role)+": "+oneLine("["+agent.MediaName(b)+"]", maxSummaryLine))
		case run.ToolResult:
			lines = append(lines, "- tool: "+oneLine(resultStart(b, bodies), maxResultLine))
		case run.ToolUse:
			names := []string{b.Name}
			for ; i+1 < len(left) && left[i+1].Source.SameEvent(m.Source); i++ {
				if u, ok := left[i+1].Block.(run.ToolUse); ok {
					names = append(names, u.Name)
				}
			}
			calls := d.Word(agent.WordEvictedCalls, map[string]any{"Tools": strings.Join(names, ", ")})
			lines = append(lines, "- "+string(m.Role)+": "+oneLine(calls, maxSummaryLine))
		}
	}
	return lines
}

// oneLine returns the beginning of a text on one line, at most most bytes. A quoted text therefore cannot add a line of
// its own.
func oneLine(text string, most int) string {
	text = text[:policy.RuneStart(text, 4*most)]
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"),
		func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return text[:policy.RuneStart(text, most)]
}

// tailOf returns the text, or the end of it that fits into this many tokens, behind a marker.
func tailOf(text string, tokens int, marker string) string {
	text = strings.TrimPrefix(text, marker+"\n")
	if ProseTokens(len(text)) <= tokens {
		return text
	}
	from := len(text) - proseBytes(tokens)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return marker + "\n" + text[from:]
}

// addFiles adds the arguments "path" of calls to the known ones, each once, newest last, and drops the oldest beyond
// tokens.
func addFiles(known []string, left []run.Message, tokens int) []string {
	files := slices.Clone(known)
	for _, m := range left {
		u, ok := m.Block.(run.ToolUse)
		if !ok {
			continue
		}
		var args map[string]json.RawMessage
		var path string
		if json.Unmarshal(u.Input, &args) != nil || json.Unmarshal(args["path"], &path) != nil || path == "" ||
			len(path) > maxPath || path != oneLine(path, maxPath) {
			continue
		}
		files = append(slices.DeleteFunc(files, func(f string) bool { return f == path }), path)
	}
	return files[policy.NewestWithin(proseBytes(tokens), files, func(f string) int { return len(f) + 2 }):]
}

// maxPath is the maximum length of a remembered path in bytes. A longer one is left out, because half a path names no
// file.
const maxPath = 300

// withSummary returns the system text with the summary of evicted messages behind it.
func withSummary(d *agent.Definition, s *run.AgentState, system string) string {
	if s.Summary == "" && len(s.Files) == 0 {
		return system
	}
	return agent.Paragraphs(system,
		d.Word(agent.WordSummary, map[string]any{"Summary": s.Summary, "Files": strings.Join(s.Files, ", ")}))
}

// Budget says how one request uses the context window, in tokens. The zero value means that nothing is counted.
type Budget struct {
	Window    int `json:"window"`
	System    int `json:"system"`
	Tools     int `json:"tools"`
	Active    int `json:"active"`
	Output    int `json:"output"`
	Safety    int `json:"safety"`
	Messages  int `json:"messages"`
	Remaining int `json:"remaining"` // what the others leave of Window, never less than 0
}

// Room returns what is stored of the budget with the reply; nil = nothing. With a fixed term it is stored with every
// reply, because people follow the arithmetic (seed 002). A measured one is stored only when the window fills up.
func (b Budget) Room(d *agent.Definition) *run.Room {
	x := d.Context
	if x.Window == 0 || x.Measured() && b.Remaining >= roomNear*x.EvictBelow {
		return nil
	}
	return &run.Room{Left: b.Remaining, Of: b.Window}
}

// roomNear is how many times evictBelow may be left when the budget is stored.
const roomNear = 4

// Measured has facts about the next request that are not in the run's state.
type Measured struct {
	System string            // the system text, without the summary
	Bodies map[string][]byte // live results that are in blobs, by digest
	Count  int64             // tokens of the whole request by a provider's count; 0 = nobody counted
}

// gauge measures the requests of one inference.
type gauge struct {
	d *agent.Definition
	a policy.Action
	m Measured

	off    int // what a provider counted beyond the estimate of the conversation; less than 0 where it counted less
	guess  int // tokens that nothing but an estimate is known of
	exact  bool
	budget Budget
}

// newGauge measures s, with what providers have counted of it.
func newGauge(d *agent.Definition, s *run.AgentState, a policy.Action, m Measured) gauge {
	g := gauge{d: d, a: a, m: m}
	if d.Context.Window == 0 {
		return g
	}
	g.budget = g.read(s)
	g.guess = g.budget.Messages
	if !d.Context.Measured() {
		return g
	}
	around := g.budget.System + g.budget.Tools
	held := g.estimated(s, s.Counted.Through)
	switch counted, estimate := int(s.Counted.Tokens), around+held; {
	case m.Count > 0:
		g.off, g.guess, g.exact = int(m.Count)-around-g.budget.Messages, 0, true
	case counted > 0 && counted <= 4*estimate && estimate <= 4*counted: // no real count is four times off
		g.off, g.guess = counted-estimate, g.budget.Messages-held
	}
	g.budget = g.read(s)
	return g
}

// read returns the budget for the state s.
func (g *gauge) read(s *run.AgentState) Budget {
	x := g.d.Context
	b := Budget{Window: x.Window, Active: x.Reserve.Active, Output: x.Reserve.Output, Safety: x.Reserve.Safety}
	if x.Reserve.System != nil {
		b.System = *x.Reserve.System
	} else {
		b.System = ProseTokens(len(withSummary(g.d, s, g.m.System)))
	}
	if x.Reserve.Tools != nil {
		b.Tools = *x.Reserve.Tools
	} else {
		b.Tools = toolTokens(policy.Offered(g.d, s, g.a))
	}
	b.Messages = max(0, g.estimated(s, s.EvictedMessages+int64(s.Messages.Len()))+g.off)
	b.Remaining = max(0, b.Window-b.System-b.Tools-b.Active-b.Output-b.Safety-b.Messages)
	return b
}

// estimated returns the estimated size of the conversation's live messages whose number, evicted ones included, is
// below through. Masked media count as the text in the request. Results that compressAfter shortens count whole, as in
// the seed.
func (g *gauge) estimated(s *run.AgentState, through int64) int {
	through -= s.EvictedMessages
	if through <= 0 {
		return 0
	}
	all, sum := s.Messages.All(), 0
	if through >= int64(len(all)) {
		all = pairResults(s)
	} else {
		all = all[:through]
	}
	for _, m := range all {
		if media, ok := m.Block.(run.Media); ok && isMasked(g.d, s, m) {
			m.Block = run.Text{Text: agent.TextMediaSeen(g.d, media)}
		}
		sum += MessageTokens(m, g.m.Bodies)
	}
	return sum
}

// What a request for a summary quotes: bytes of one message, and of all of them, the newest first.
const (
	maxNoted    = 4 << 10
	maxNotedAll = 64 << 10
)

// SummaryRequest returns the request for the summary of what e evicts from s. owed is false if the definition has it
// written by rule, or e has no summary.
func SummaryRequest(
	d *agent.Definition, s *run.AgentState, e run.Evicted, bodies map[string][]byte,
) (r agent.Request, owed bool) {
	n := int(e.Total - s.EvictedMessages)
	if d.Context.SummaryBy != agent.SummaryModel || e.Summary == s.Summary || n <= 0 || n > s.Messages.Len() {
		return agent.Request{}, false
	}
	r = agent.Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Replies() + 1, Model: d.Model,
		System: d.Word(agent.WordWriteSummary, nil), Inferences: s.Inferences, Lifecycle: run.LifecycleNotes,
		Interactions: s.Interactions,
	}
	r.Messages = []run.Message{r.Once(quoteNotes(s.Summary, s.Messages.All()[:n], bodies))}
	return r, true
}

// quoteNotes quotes notes and messages, each as a line of JSON text, so that none can imitate another.
func quoteNotes(notes string, left []run.Message, bodies map[string][]byte) string {
	var lines []string
	size := 0
	for i := len(left) - 1; i >= 0 && size <= maxNotedAll; i-- {
		if line := quoteNote(left[i], bodies); line != "" {
			lines = append(lines, line)
			size += len(line)
		}
	}
	if notes != "" {
		lines = append(lines, "Notes so far: "+string(agent.TextOutput(notes)))
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

func quoteNote(m run.Message, bodies map[string][]byte) string {
	quoted := func(who, text string) string {
		return who + ": " + string(agent.TextOutput(text[:policy.RuneStart(text, maxNoted)]))
	}
	switch b := m.Block.(type) {
	case run.Text:
		return quoted(string(m.Role), b.Text)
	case run.ToolUse:
		return quoted("call of "+agent.QuotedName(b.Name), string(b.Input))
	case run.ToolResult:
		return quoted("result", resultStart(b, bodies))
	case run.Media:
		return quoted(string(m.Role)+" gave", agent.MediaName(b))
	default:
		return ""
	}
}

// Summarised returns the eviction with the summary that a model wrote, and the usage of its requests. If the model
// failed, refused, or wrote nothing or no whole text, the summary stays as it was.
func Summarised(d *agent.Definition, e run.Evicted, r agent.Reply, requests int) run.Evicted {
	e.Requests = requests
	if r.Usage != (run.Usage{}) {
		e.Usage, e.Units, e.Cost = &r.Usage, r.Usage.Total(), d.Model.ChainModel(r.Place).Price.Of(r.Usage)
	}
	text := agent.ValidText(r.Text)
	// what it thought is no part of its notes, and there is nothing to call
	if d.Model.ChainModel(r.Place).Dialect == agent.DialectXML {
		text = policy.ReadToolText(text).Text
	}
	if text = strings.TrimSpace(text); text == "" || policy.IsCutShort(r.StopReason) {
		return e
	}
	if most := proseBytes(d.Context.Summary); len(text) > most {
		text = text[:policy.RuneStart(text, most)]
	}
	e.Summary = text
	return e
}

// JSONTokens estimates the tokens of this many bytes of JSON: one for 2.8 bytes, rounded up.
func JSONTokens(bytes int) int { return (bytes*5 + 13) / 14 }

// proseBytes returns how many bytes of prose are at most this many tokens.
func proseBytes(tokens int) int { return tokens * 16 / 5 }

// toolTokens estimates the definitions of tools as a request offers them.
func toolTokens(tools []agent.ToolSpec) int {
	if len(tools) == 0 {
		return 0
	}
	type definition struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Schema      any    `json:"inputSchema"`
	}
	offered := run.Map(tools, func(t agent.ToolSpec) definition { return definition{t.Name, t.Description, t.Schema} })
	text, _ := jsonx.MarshalVerbatim(offered) // a schema that Check let through always marshals
	return JSONTokens(len(text))
}

// Tokens are estimated by bytes, as seed 002 does, because no provider's tokenizer can be had everywhere and every
// estimate has to be the same on every machine (presets 6). Which ratio counts where:
//
//   - What the sum of the conversation holds is prose, arguments and results of calls included: so the seed counts a
//     message once it is added. A message costs 4 more, a call 10 more for its name and its frame, a result its call's
//     id more.
//   - JSON is denser: definitions of tools are measured by it, and a result where it is looked at by itself
//     (compressResult).
//   - Media are no text. A picture or a file takes imageTokens, whatever its bytes; a file of text, what its text
//     takes.
//
// Estimates are wrong by a third either way. Context.Reserve.Safety is for that, and where nothing of the partition is
// fixed a provider's own count replaces them (gauge).

// The extra cost of what is around a text.
const (
	messageTokens = 4
	callTokens    = 10
	imageTokens   = 1600 // of a picture as large as providers take it
)

// ProseTokens estimates the tokens of this many bytes of prose: one for 3.2 bytes, rounded up.
func ProseTokens(bytes int) int { return (bytes*5 + 15) / 16 }

// MessageTokens estimates a message as it is in a request. bodies has the results that are in blobs.
func MessageTokens(m run.Message, bodies map[string][]byte) int {
	switch b := m.Block.(type) {
	case run.Text:
		return messageTokens + ProseTokens(len(b.Text))
	case run.Reasoning:
		return messageTokens + ProseTokens(len(b.Text)+len(b.Signature)+len(b.Redacted))
	case run.Media:
		return messageTokens + mediaTokens(b)
	case run.ToolUse:
		return messageTokens + callTokens + ProseTokens(len(b.Input))
	case run.ToolResult:
		return messageTokens + ProseTokens(resultSize(b, bodies)) + ProseTokens(len(b.ID))
	default:
		return messageTokens
	}
}

// resultSize returns the length of the result that a model reads, in bytes.
func resultSize(r run.ToolResult, bodies map[string][]byte) int {
	if r.Content == "" && r.Blob != "" {
		return len(bodies[r.Blob])
	}
	return len(r.Content)
}

// resultStart returns as much of a result as notes may quote.
func resultStart(r run.ToolResult, bodies map[string][]byte) string {
	if r.Content == "" && r.Blob != "" {
		body := bodies[r.Blob]
		return string(body[:min(len(body), maxNoted+utf8.UTFMax)])
	}
	return r.Content
}

// mediaTokens estimates the tokens of a file. The size of one in a blob is not known here.
func mediaTokens(m run.Media) int {
	const base64Text = 4 // bytes for three of the file
	if m.Data != "" && strings.HasPrefix(m.MediaType, "text/") {
		return ProseTokens(len(m.Data) / base64Text * 3)
	}
	return imageTokens
}
