package agent

import (
	"cmp"
	"unicode/utf8"
)

// Whole is where all of a result is of which the conversation holds a part. The zero value is not valid.
type Whole struct {
	Call  string `json:"call,omitempty"` // whose result it is; "" = the call's own
	Blob  string `json:"blob"`           // the digest of its text, resolved under the run's tenant only
	Chars int    `json:"chars"`          // of that text: Unicode code points
}

// CutResult is as much of a tool's result as the agent's context takes, in whole characters, and how many it has in all (semantics 4.4).
// cut is false where that is all of it. What the bytes of text are no characters of is replaced.
func (d *Definition) CutResult(text string) (head string, chars int, cut bool) {
	text = validText(text)
	chars = utf8.RuneCountInString(text)
	if most := d.Context.TruncateResult; most > 0 && chars > most {
		return text[:runeOffset(text, most)], chars, true
	}
	return text, chars, false
}

// CutNotice stands behind what CutResult left of a call's result: how much is shown, and, where all of it is kept, how the model reads on.
func (d *Definition) CutNotice(call string, chars int, kept bool) string {
	shown := d.Context.TruncateResult
	fields := map[string]any{"Shown": shown, "Total": chars}
	if !kept {
		return "\n\n" + d.word(wordResultCut, fields)
	}
	fields["Tool"], fields["Call"], fields["Arguments"] = ReadMore, call, readMoreArguments(call, shown)
	return "\n\n" + d.word(wordResultKept, fields)
}

// runeOffset is where character number n of a text begins, from 0, in bytes; the text's length where it has no more than n.
func runeOffset(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// wholeOf finds all of a call's result by a message of the conversation that holds part of it: the result itself, or a page of it. listed
// is true where the conversation has a result of the call.
func (s *AgentState) wholeOf(call string) (w Whole, found, listed bool) {
	for _, m := range s.Messages.All() {
		r, ok := m.Block.(ToolResult)
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
	return Whole{}, false, listed
}

// cutResults reports whether a result stands in the conversation of which the rest can be read.
func (s *AgentState) cutResults() bool {
	for _, m := range s.Messages.All() {
		if r, ok := m.Block.(ToolResult); ok && r.Whole != nil {
			return true
		}
	}
	return false
}

// The keys of what is said about results that are cut.
const (
	wordResultCut  = "resultCut"
	wordResultKept = "resultKept"
	wordPage       = "resultPage"
	wordLastPage   = "resultLastPage"
)

// wordingsOfResults stand behind what is shown of a tool's result.
var wordingsOfResults = []Wording{
	{
		Key: wordResultCut, About: "behind a result that was cut and is not kept", Fields: []string{"Shown", "Total"},
		Text: "[The first {{.Shown}} of {{.Total}} characters of this result are shown. The rest was left out.]",
	},
	{
		Key: wordResultKept, About: "behind a result that was cut and is kept", Fields: []string{"Shown", "Total", "Tool", "Call", "Arguments"},
		Text: "[The first {{.Shown}} of {{.Total}} characters of this result are shown. Read on with {{.Tool}} {{.Arguments}}.]",
	},
	{
		Key: wordPage, About: "behind a page of a result", Fields: []string{"First", "Last", "Total", "Tool", "Call", "Arguments"},
		Text: "[Characters {{.First}} to {{.Last}} of {{.Total}} of the result of call {{.Call}} are shown. Read on with {{.Tool}} {{.Arguments}}.]",
	},
	{
		Key: wordLastPage, About: "behind the last page of a result", Fields: []string{"First", "Last", "Total", "Call"},
		Text: "[Characters {{.First}} to {{.Last}} of {{.Total}} of the result of call {{.Call}} are shown. This is its end.]",
	},
}

func readMoreArguments(call string, from int) string {
	raw, err := MarshalVerbatim(struct {
		Call string `json:"call"`
		From int    `json:"from"`
	}{call, from})
	if err != nil { // a string and a number always marshal
		return ""
	}
	return string(raw)
}
