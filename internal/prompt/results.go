package prompt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Shown is what the model is shown of a tool's result.
type Shown struct {
	Text  string // all of it, or its beginning and how to read on
	Lost  string // says that the tool gave more than is taken, which is nowhere; "" = it did not
	Whole string // the result of which Text has the beginning; "" = Text has all of it
	Chars int    // of Whole
}

// ShowResult cuts the result of a call of t (presets 6): to t's maxResult in bytes, beyond which it is lost, and then
// to context.truncateResult in characters. kept says that the model can read on in Whole. No character is cut in two,
// and invalid bytes are replaced.
func ShowResult(d *agent.Definition, t agent.ToolSpec, call, text string, kept bool) Shown {
	var r Shown
	most, total := cmp.Or(t.MaxResult, agent.MaxResult), int64(len(text))
	if total > 2*most+utf8.UTFMax { // what cannot be shown any more need not be looked at
		text = text[:2*most+utf8.UTFMax]
	}
	text = agent.ValidText(text)
	if total > most || int64(len(text)) > most {
		text = text[:policy.RuneStart(text, int(most))]
		r.Lost = fmt.Sprintf("[The first %d of %d bytes of this result were taken, and the rest is lost: "+
			"%s gives at most %d.]", len(text), total, t.Name, most)
	}
	shown, chars := d.Context.TruncateResult, utf8.RuneCountInString(text)
	if shown <= 0 || chars <= shown {
		r.Text = text
		return r
	}
	r.Whole, r.Chars = text, chars
	word, fields := agent.WordResultCut, map[string]any{"Shown": shown, "Total": chars}
	if kept {
		word = agent.WordResultKept
		fields["Tool"], fields["Call"], fields["Arguments"] = agent.ReadMore, call, readMoreArguments(call, shown)
	}
	r.Text = text[:RuneOffset(text, shown)] + "\n\n" + d.Word(word, fields)
	return r
}

// ShowMessages returns a conversation as a request shows it. Media that an inference has carried are replaced by text,
// so that each is shown to one successful call. Results before the newest compressAfter messages are shortened, but no
// placeholders (presets 6). No message is changed in place, and seenCounts stay. The call's stored result is whole.
func ShowMessages(d *agent.Definition, s *run.AgentState, messages []run.Message) []run.Message {
	old := 0
	if d.Context.CompressAfter > 0 {
		old = len(messages) - d.Context.CompressAfter
	}
	out, say := messages, d.WordFunc(agent.WordCompressed)
	for i, m := range messages {
		var shown run.Block
		switch b := m.Block.(type) {
		case run.Media:
			if isMasked(d, s, m) {
				shown = run.Text{Text: agent.TextMediaSeen(d, b)}
			}
		case run.ToolResult:
			if c, known := s.Call(b.ID); i < old && (!known || !c.Open()) {
				shown = compressResult(b, say)
			}
		}
		if shown == nil {
			continue
		}
		if &out[0] == &messages[0] {
			out = slices.Clone(messages)
		}
		out[i].Block = shown
	}
	return out
}

// isMasked reports whether the next request shows a message's media as text. A failed inference has carried nothing.
func isMasked(d *agent.Definition, s *run.AgentState, m run.Message) bool {
	return d.Context.Mask && m.Seen(s.Inferences) > 0
}

// What of a result stands in its place: all of it up to so many tokens, else so many bytes of its beginning.
const (
	compressWhole = 50
	compressStart = 100
)

// compressResult shortens an old result for a request. It does not fetch the body of a result in a blob.
func compressResult(r run.ToolResult, say func(fields map[string]any) string) run.ToolResult {
	n := JSONTokens(len(r.Content))
	switch {
	case r.Content == "" && r.Blob == "":
		return r
	case n <= compressWhole && r.Blob == "":
		r.Content = "[" + r.Content + "]"
	default:
		r.Content = say(map[string]any{"Tokens": n, "Start": r.Content[:policy.RuneStart(r.Content, compressStart)]})
	}
	r.Blob = ""
	return r
}

// MaxRequestMedia is the maximum size of media from blobs in one request to a model, in bytes before base64. Providers
// take 20 to 50 MB a request, base64 included, and a function has 256 MB of memory.
const MaxRequestMedia = 15_000_000

// MediaBlobs returns the digests of the media blobs that messages name, each once, the newest first.
func MediaBlobs(messages []run.Message) []string {
	var out []string
	for _, said := range slices.Backward(messages) {
		if m, ok := said.Block.(run.Media); ok && m.Blob != "" && !slices.Contains(out, m.Blob) {
			out = append(out, m.Blob)
		}
	}
	return out
}

// FitMedia chooses which media from blobs one request carries: the newest first, up to most bytes in all. It replaces
// the others by text in a copy of the messages. sizes has the bytes of every blob that messages name.
func FitMedia(messages []run.Message, sizes map[string]int64, most int64) []run.Message {
	out, left := slices.Clone(messages), most
	for i, said := range slices.Backward(out) {
		m, ok := said.Block.(run.Media)
		if !ok || m.Blob == "" {
			continue
		}
		if size := sizes[m.Blob]; size > left {
			out[i].Block = run.Text{Text: agent.TextMediaTooLarge(m, size, most)}
		} else {
			left -= size
		}
	}
	return out
}

// pairResults returns the conversation in the form that providers take: every tool_use has exactly one result, directly
// behind its turn. A result that came after other turns moves to its tool_use, with its media. A placeholder stands for
// a result that is still to come. The results of a turn are in request order. What is stored is not changed, and
// seenCounts move with their messages. The slice has no capacity to append in place.
func pairResults(s *run.AgentState) []run.Message {
	all := s.Messages.All()
	if !s.WithPlaceholders() && s.From == nil { // results come in whole rounds
		return all
	}
	results := map[string]int{} // where each call's result stands in all
	for i, m := range all {
		if r, ok := m.Block.(run.ToolResult); ok {
			results[r.ID] = i
		}
	}
	out := make([]run.Message, 0, len(all)+len(s.Live))
	var turn run.Source // of the model's turn that is open
	var owed []string   // its calls
	endTurn := func() {
		for _, id := range owed {
			if i, ok := results[id]; ok {
				out = append(out, all[i:policy.ResultEnd(all, i)]...)
			} else {
				c, _ := s.Call(id) // it is open
				b := run.ToolResult{ID: id, Content: agent.TextPlaceholder(c)}
				out = append(out, run.Message{Role: run.RoleUser, Block: b, Base: -s.Inferences})
			}
		}
		owed = nil
	}
	used, placed := map[string]bool{}, 0 // messages up to placed went with their result
	for i, m := range all {
		if m.Role != run.RoleAssistant || !m.Source.SameEvent(turn) {
			endTurn()
			turn = m.Source
		}
		switch b := m.Block.(type) {
		case run.ToolUse:
			owed, used[b.ID] = append(owed, b.ID), true
		case run.ToolResult:
			if used[b.ID] {
				placed = policy.ResultEnd(all, i)
			}
		}
		if i >= placed {
			out = append(out, m)
		}
	}
	endTurn()
	return slices.Clip(out)
}

// lateCalls lists the calls whose results came after a later turn of the model and were carried by no inference.
// pairResults has moved those results.
func lateCalls(s *run.AgentState) []string {
	all := s.Messages.All()
	last := len(all) - 1
	for ; last >= 0 && all[last].Role != run.RoleAssistant; last-- {
	}
	if last < 0 {
		return nil
	}
	turn := map[string]bool{}
	for i := last; i >= 0 && all[i].Role == run.RoleAssistant && all[i].Source.SameEvent(all[last].Source); i-- {
		if u, ok := all[i].Block.(run.ToolUse); ok {
			turn[u.ID] = true
		}
	}
	var ids []string
	for _, m := range all[last+1:] {
		if r, ok := m.Block.(run.ToolResult); ok && !turn[r.ID] && m.Seen(s.Inferences) == 0 {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Page is the part of a result that a call of ReadMore asks for. The zero value is not valid.
type Page struct {
	Whole run.Whole // Call is set
	From  int       // its first character
	Chars int       // at most so many
}

// PageOf returns the page that c, a call of ReadMore, asks for. It must be a page of a result of which the conversation
// holds a part: a run folded from a snapshot knows no others. The error is for the model.
func PageOf(d *agent.Definition, s *run.AgentState, c run.Call) (Page, error) {
	var args struct {
		Call  string      `json:"call"`
		From  json.Number `json:"from"`
		Chars json.Number `json:"chars"`
	}
	if err := json.Unmarshal(c.Input, &args); err != nil {
		return Page{}, fmt.Errorf("%s takes a call, from and chars: %w", agent.ReadMore, err)
	}
	w, found, listed := findWhole(s, args.Call)
	switch {
	case !found && listed:
		return Page{}, fmt.Errorf("the result of call %s was not cut: all of it stands in the conversation",
			agent.QuotedName(args.Call))
	case !found:
		return Page{}, fmt.Errorf("there is no call %s in the conversation whose result was cut", agent.QuotedName(args.Call))
	}
	from, ok := wholeNumber(args.From)
	if !ok || from < 0 || from >= w.Chars {
		return Page{}, fmt.Errorf("the result of call %s has %d characters: from has to be 0 to %d", w.Call, w.Chars,
			w.Chars-1)
	}
	most := d.Context.TruncateResult
	chars, ok := wholeNumber(args.Chars)
	if args.Chars == "" {
		chars, ok = most, true
	}
	if !ok || chars < 1 || chars > most {
		return Page{}, fmt.Errorf("chars has to be 1 to %d", most)
	}
	return Page{Whole: w, From: from, Chars: chars}, nil
}

// wholeNumber returns a JSON number as an int. 6e3 and 6000.0 are whole, too.
func wholeNumber(n json.Number) (int, bool) {
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, true
	}
	f, err := n.Float64()
	if err != nil || f != float64(int32(f)) {
		return 0, false
	}
	return int(f), true
}

// PageText returns the page as the model reads it: its characters, and a notice of which they are and how to read on.
// text is the whole result. It is an error if text is not the result that the page is of.
func PageText(d *agent.Definition, p Page, text string) (string, error) {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) != p.Whole.Chars {
		return "", fmt.Errorf("the blob %s does not hold the %d characters of the result of call %s", p.Whole.Blob,
			p.Whole.Chars, p.Whole.Call)
	}
	rest := text[RuneOffset(text, p.From):]
	shown := rest[:RuneOffset(rest, p.Chars)]
	last := min(p.From+p.Chars, p.Whole.Chars)
	fields := map[string]any{"First": p.From + 1, "Last": last, "Total": p.Whole.Chars, "Call": p.Whole.Call}
	if last == p.Whole.Chars {
		return shown + "\n\n" + d.Word(agent.WordLastPage, fields), nil
	}
	fields["Tool"], fields["Arguments"] = agent.ReadMore, readMoreArguments(p.Whole.Call, last)
	return shown + "\n\n" + d.Word(agent.WordPage, fields), nil
}

// RuneOffset returns the byte offset of character n of a text, from 0; the text's length if there is none.
func RuneOffset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// findWhole finds the whole result of a call by a message of the conversation that holds part of it: the result itself,
// or a page of it. listed is true if the conversation has a result of the call.
func findWhole(s *run.AgentState, call string) (w run.Whole, found, listed bool) {
	for _, m := range s.Messages.All() {
		r, ok := m.Block.(run.ToolResult)
		if !ok {
			continue
		}
		listed = listed || r.ID == call
		if r.Whole != nil && (r.ID == call || r.Whole.Call == call) {
			w = *r.Whole
			w.Call = cmp.Or(w.Call, r.ID)
			return w, true, true
		}
	}
	return run.Whole{}, false, listed
}

func readMoreArguments(call string, from int) string {
	raw, _ := jsonx.MarshalVerbatim(struct { // a string and a number always marshal
		Call string `json:"call"`
		From int    `json:"from"`
	}{call, from})
	return string(raw)
}
