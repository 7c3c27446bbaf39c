package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MakeRoom is what has to be committed before, and in the entry of, the reply to the request that action a asks for, so that the request fits:
// what prune takes out, what the window evicts, and that even then too little is left (semantics 4.1, 5.5, 6.1). Nothing, far from the
// window's end. The budget is that of the request once the facts are known; Next says what is owed then.
func MakeRoom(d *Definition, s *AgentState, a Action, m Measured) ([]Event, Budget) {
	g := newGauge(d, s, a, m)
	after := *s
	var facts []Event
	leave := func(e Evicted) {
		if e.Total <= after.EvictedMessages {
			return
		}
		g.leaves(&after, e)
		facts = append(facts, e)
	}
	leave(after.pruned(d, m))
	if x := d.Context; x.Window > 0 && g.budget.Remaining < x.EvictBelow {
		leave(after.crowdedOut(d))
	}
	if g.full() {
		facts = append(facts, ContextFull{Left: g.budget.Remaining, Of: g.budget.Window})
	}
	return facts, g.budget
}

// Doubt reports whether a provider's own count of the request could turn what MakeRoom does: what is only estimated is as large as the
// distance to the next threshold, or half of it. Nothing fixed may be in the partition, since a provider counts the request as a whole.
func Doubt(d *Definition, s *AgentState, a Action, m Measured) bool {
	g := newGauge(d, s, a, m)
	if d.Context.Window == 0 || !d.Context.measured() || g.exact || a.Lifecycle == LifecycleSummary {
		return false
	}
	near := func(threshold int) bool {
		distance := g.budget.Remaining - threshold
		return threshold > 0 && max(distance, -distance) <= g.guess/2
	}
	return near(d.Context.EvictBelow) || near(d.Context.RoundMinimum)
}

// leaves takes an eviction into account: what a provider counted beyond the estimate stays what it was.
func (g *gauge) leaves(s *AgentState, e Evicted) {
	s.take(e)
	if g.d.Context.Window > 0 {
		g.budget = g.read(s)
	}
}

// full reports whether another round does not fit. A summary is asked for all the same.
func (g *gauge) full() bool {
	x := g.d.Context
	return x.Window > 0 && g.a.Lifecycle != LifecycleSummary && g.budget.Remaining < x.RoundMinimum
}

// take is evicted without its conditions.
func (s *AgentState) take(e Evicted) {
	s.Messages = s.Messages.DropFront(int(e.Total - s.EvictedMessages))
	s.EvictedMessages, s.Summary, s.Files = e.Total, e.Summary, e.Files
}

// pruned takes out the oldest messages until what is left fits, the system text included (seed 004). The newest are kept until one does not
// fit; what left has no summary.
func (s *AgentState) pruned(d *Definition, m Measured) Evicted {
	e := Evicted{Total: s.EvictedMessages, Summary: s.Summary, Files: s.Files}
	if d.Context.Prune == 0 {
		return e
	}
	all, left := s.Messages.All(), d.Context.Prune-len(m.System)/pruneBytes
	first := len(all)
	for ; first > 0; first-- {
		if left -= all[first-1].bytes(m.Bodies) / pruneBytes; left < 0 {
			break
		}
	}
	e.Total += int64(s.departing(first))
	return e
}

// pruneBytes are a token where seed 004 counts.
const pruneBytes = 4

// bytes is the length of a message as seed 004 counts it. Of media, that of the tokens they take.
func (m Message) bytes(bodies map[string]int) int {
	switch b := m.Block.(type) {
	case Text:
		return len(b.Text)
	case Reasoning:
		return len(b.Text) + len(b.Signature) + len(b.Redacted)
	case Media:
		return pruneBytes * b.tokens()
	case ToolUse:
		return len(b.Name) + len(b.Input)
	case ToolResult:
		return b.size(bodies)
	default:
		return 0
	}
}

// crowdedOut takes out all but the newest messages in one go (seed 002) and adds a line for each to the summary.
func (s *AgentState) crowdedOut(d *Definition) Evicted {
	n := s.departing(s.Messages.Len() - d.Context.Keep)
	e := Evicted{Total: s.EvictedMessages + int64(n), Summary: s.Summary, Files: s.Files}
	if n == 0 || d.Context.Summary == 0 {
		return e
	}
	left := s.Messages.All()[:n]
	lines := append(strings.Split(s.Summary, "\n"), summaryLines(d, left)...)
	if s.Summary == "" {
		lines = lines[1:]
	}
	e.Summary = newestOf(strings.Join(lines, "\n"), d.Context.Summary, d.word(wordOmitted, nil))
	e.Files = filesOf(s.Files, left, d.Context.Summary)
	return e
}

// departing is how many of the oldest messages leave where want of them are to: as many more as it takes to leave no round, turn or result in
// part; where those may not leave yet, as many fewer. What no inference has carried stays, and so does an open call with what came after.
func (s *AgentState) departing(want int) int {
	free := s.seenByAll()
	if want <= 0 || free == 0 {
		return 0
	}
	all, results, best, whole := s.Messages.All(), s.resultPlaces(), 0, 0
	for i := range free {
		whole = max(whole, s.bond(all, i, results))
		if whole > i+1 {
			continue
		}
		if best = i + 1; best >= want {
			break
		}
	}
	return best
}

// seenByAll is how many of the oldest messages may leave as far as they themselves go.
func (s *AgentState) seenByAll() int {
	all := s.Messages.All()
	if !s.withPlaceholders() && slices.ContainsFunc(s.Live, Call.Open) {
		return 0
	}
	n := slices.IndexFunc(all, func(m Message) bool { return m.Seen(s.Inferences) <= 0 })
	if n < 0 {
		n = max(0, len(all)-1) // no request is empty
	}
	if s.Correction.continues() { // the reply that the model goes on with
		n = min(n, int(max(0, s.Cut.From-s.EvictedMessages)))
	}
	return n
}

// resultPlaces is where each call's result stands among the live messages.
func (s *AgentState) resultPlaces() map[string]int {
	places := map[string]int{}
	for i, m := range s.Messages.All() {
		if r, ok := m.Block.(ToolResult); ok {
			places[r.ID] = i
		}
	}
	return places
}

// bond is the place behind what has to leave with message i: the rest of the model's turn, a call's result, the media of a result.
func (s *AgentState) bond(all []Message, i int, results map[string]int) int {
	end := i + 1
	if all[i].Role == RoleAssistant && end < len(all) && all[end].Role == RoleAssistant && all[end].Source.sameEvent(all[i].Source) {
		end++
	}
	switch b := all[i].Block.(type) {
	case ToolUse:
		at, settled := results[b.ID]
		if !settled {
			return len(all) + 1 // it is open
		}
		end = max(end, at+1)
	case ToolResult, Media:
		if end < len(all) && all[end].Source.sameEvent(all[i].Source) && isMedia(all[end].Block) {
			end++
		}
	}
	return end
}

func isMedia(b Block) bool {
	_, ok := b.(Media)
	return ok
}

// The length of what a line quotes, in bytes (semantics 4.1).
const (
	maxSaidLine   = 80
	maxResultLine = 60
)

// summaryLines has a line for each message that says something, and one for the calls of a turn.
func summaryLines(d *Definition, left []Message) []string {
	var lines []string
	for i := 0; i < len(left); i++ {
		m := left[i]
		switch b := m.Block.(type) {
		case Text:
			lines = append(lines, "- "+string(m.Role)+": "+oneLine(b.Text, maxSaidLine))
		case Media:
			lines = append(lines, "- "+string(m.Role)+": "+oneLine("["+mediaName(b)+"]", maxSaidLine))
		case ToolResult:
			lines = append(lines, "- tool: "+oneLine(b.Content, maxResultLine))
		case ToolUse:
			names := []string{b.Name}
			for ; i+1 < len(left) && left[i+1].Source.sameEvent(m.Source); i++ {
				if u, ok := left[i+1].Block.(ToolUse); ok {
					names = append(names, u.Name)
				}
			}
			calls := d.word(wordEvictedCalls, map[string]any{"Tools": strings.Join(names, ", ")})
			lines = append(lines, "- "+string(m.Role)+": "+oneLine(calls, maxSaidLine))
		}
	}
	return lines
}

// oneLine is the beginning of a text, at most so many bytes and no more than a line: nobody who is quoted makes up a line of their own.
func oneLine(text string, most int) string {
	text = text[:runeStart(text, 4*most)]
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	return text[:runeStart(text, most)]
}

// newestOf is the text, or as much of its end as so many tokens hold, behind a marker of its own.
func newestOf(text string, tokens int, marker string) string {
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

// filesOf adds the paths that calls name to those that are known, each once, the newest last, and drops the oldest above so many tokens.
func filesOf(known []string, left []Message, tokens int) []string {
	files := slices.Clone(known)
	for _, m := range left {
		u, ok := m.Block.(ToolUse)
		if !ok {
			continue
		}
		path := pathOf(u.Input)
		if path == "" || len(path) > maxPath || path != oneLine(path, maxPath) {
			continue
		}
		files = append(slices.DeleteFunc(files, func(f string) bool { return f == path }), path)
	}
	size, first := 0, len(files)
	for ; first > 0; first-- {
		if size += len(files[first-1]) + 2; ProseTokens(size) > tokens {
			break
		}
	}
	return files[first:]
}

// maxPath is how long a path may be to be remembered, in bytes: half of one names no file.
const maxPath = 300

// pathOf is the argument path of a call, "" where it has none.
func pathOf(input json.RawMessage) string {
	var args map[string]json.RawMessage
	var path string
	if json.Unmarshal(input, &args) != nil || json.Unmarshal(args["path"], &path) != nil {
		return ""
	}
	return path
}

// SummaryShown is what is left of the messages that were evicted, as people see it: the notes, and the files they name.
func (s *AgentState) SummaryShown() string {
	if len(s.Files) == 0 {
		return s.Summary
	}
	return s.Summary + "\nFiles: " + strings.Join(s.Files, ", ")
}

// withSummary is the system text as a request has it: behind it, what is left of the messages that were evicted.
func withSummary(d *Definition, s *AgentState, system string) string {
	if s.Summary == "" && len(s.Files) == 0 {
		return system
	}
	return paragraphs(system, d.word(wordSummary, map[string]any{"Summary": s.Summary, "Files": strings.Join(s.Files, ", ")}))
}
