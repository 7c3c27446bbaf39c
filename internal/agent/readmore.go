package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// ReadMore is the name of the built-in tool by which a model reads on in a result that was cut.
const ReadMore = "read_more"

// KeepsWhole reports whether results that are cut are kept, so that the model can read on in them.
func (d *Definition) KeepsWhole() bool { return d.Context.KeepWhole && d.Context.TruncateResult > 0 }

// readMore is the tool, if the agent has it. It reads what is on record and nothing else.
func (d *Definition) readMore() (ToolSpec, bool) {
	if !d.KeepsWhole() {
		return ToolSpec{}, false
	}
	return ToolSpec{
		Name: ReadMore, Kind: KindInternal, Effect: EffectRead,
		Description: "Read on in the result of a tool call that was cut because it is long. Characters are counted from 0.",
		Schema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{`+
			`"call":{"type":"string","description":"The id of the call, as the notice behind its result gives it."},`+
			`"from":{"type":"integer","minimum":0,"description":"The first character to be shown."},`+
			`"chars":{"type":"integer","minimum":1,"maximum":%[1]d,"description":"How many characters to show; %[1]d if left out."}},`+
			`"required":["call","from"],"additionalProperties":false}`, d.Context.TruncateResult)),
	}, true
}

// Page is the part of a result that a call of ReadMore asks for. The zero value is not valid.
type Page struct {
	Whole Whole // Call is set
	From  int   // its first character
	Chars int   // at most so many
}

// PageOf is the page that c, a call of ReadMore, asks for: of a result of which the conversation holds a part. What has left the
// conversation cannot be read any more, whoever may still know it: a run folded from a snapshot would not. The error is for the model.
func PageOf(d *Definition, s *AgentState, c Call) (Page, error) {
	var args struct {
		Call  string      `json:"call"`
		From  json.Number `json:"from"`
		Chars json.Number `json:"chars"`
	}
	if err := json.Unmarshal(c.Input, &args); err != nil {
		return Page{}, fmt.Errorf("%s takes a call, from and chars: %w", ReadMore, err)
	}
	w, found, listed := s.wholeOf(args.Call)
	switch {
	case !found && listed:
		return Page{}, fmt.Errorf("the result of call %s was not cut: all of it stands in the conversation", quotedName(args.Call))
	case !found:
		return Page{}, fmt.Errorf("there is no call %s in the conversation whose result was cut", quotedName(args.Call))
	}
	from, ok := wholeNumber(args.From)
	if !ok || from < 0 || from >= w.Chars {
		return Page{}, fmt.Errorf("the result of call %s has %d characters: from has to be 0 to %d", w.Call, w.Chars, w.Chars-1)
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

// wholeNumber is a JSON number as an int; 6e3 and 6000.0 are whole, too.
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

// PageText is the page as the model reads it: its characters, and a notice of which they are and how to read on. text is all of the
// result; one that is not what the page says it is is an error.
func (d *Definition) PageText(p Page, text string) (string, error) {
	if !utf8.ValidString(text) || utf8.RuneCountInString(text) != p.Whole.Chars {
		return "", fmt.Errorf("the blob %s does not hold the %d characters of the result of call %s", p.Whole.Blob, p.Whole.Chars, p.Whole.Call)
	}
	rest := text[runeOffset(text, p.From):]
	shown := rest[:runeOffset(rest, p.Chars)]
	last := min(p.From+p.Chars, p.Whole.Chars)
	fields := map[string]any{"First": p.From + 1, "Last": last, "Total": p.Whole.Chars, "Call": p.Whole.Call}
	if last == p.Whole.Chars {
		return shown + "\n\n" + d.word(wordLastPage, fields), nil
	}
	fields["Tool"], fields["Arguments"] = ReadMore, readMoreArguments(p.Whole.Call, last)
	return shown + "\n\n" + d.word(wordPage, fields), nil
}
