package agent

// compressResults shortens old results in a request (semantics 4.1): those that stand before its newest compressAfter messages. Each stays the
// result of its call. What was seen of it is in the call all the same.
func compressResults(d *Definition, _ *AgentState, messages []Message) []Message {
	old := len(messages) - d.Context.CompressAfter
	if d.Context.CompressAfter == 0 || old <= 0 {
		return messages
	}
	var out []Message
	say := d.saying(wordCompressed)
	for i, m := range messages[:old] {
		r, ok := m.Block.(ToolResult)
		if !ok {
			continue
		}
		if out == nil {
			out = append([]Message(nil), messages...)
		}
		out[i].Block = compressed(r, say)
	}
	if out == nil {
		return messages
	}
	return out
}

// What of a result stands in its place: all of it up to so many tokens, else so many bytes of its beginning.
const (
	compressWhole = 50
	compressStart = 100
)

// compressed is an old result as a request holds it. The body of one that is in a blob is not fetched for its beginning.
func compressed(r ToolResult, say func(fields map[string]any) string) ToolResult {
	n := JSONTokens(len(r.Content))
	switch {
	case r.Content == "" && r.Blob == "":
		return r
	case n <= compressWhole && r.Blob == "":
		r.Content = "[" + r.Content + "]"
	default:
		r.Content = say(map[string]any{"Tokens": n, "Start": r.Content[:runeStart(r.Content, compressStart)]})
	}
	r.Blob = ""
	return r
}
