package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Wording is a text that a policy says to a model or to people, as it is configured by its key. The text is a Template over its fields.
type Wording struct {
	Key     string
	About   string
	Text    string            // of every preset that has no other
	Presets map[Preset]string // those that have
	Fields  []string          // what {{.Name}} may name
}

// wordings is every one of them, by groups; each group stands with the policy it belongs to.
var wordings = slices.Concat(
	wordingsOfReplies, wordingsOfCalls, wordingsOfRequests, wordingsOfAnalysis, wordingsOfSummary, wordingsOfGuards, wordingsOfTextCalls,
	wordingsOfContext, wordingsOfResults, wordingsOfGate, wordingsOfPlans,
)

// Wordings lists every text that a policy says, by key.
func Wordings() []Wording {
	return slices.SortedFunc(slices.Values(wordings), func(a, b Wording) int { return strings.Compare(a.Key, b.Key) })
}

// In is the wording's default in a preset.
func (w Wording) In(p Preset) string {
	if text, ok := w.Presets[p]; ok {
		return text
	}
	return w.Text
}

// wordingOf finds a wording by key.
func wordingOf(key string) (Wording, bool) {
	i := slices.IndexFunc(wordings, func(w Wording) bool { return w.Key == key })
	if i < 0 {
		return Wording{}, false
	}
	return wordings[i], true
}

// word is the text of a wording under d, with its fields. Check has executed it with every field; where it fails all the same, it is said as
// it is written.
func (d *Definition) word(key string, fields map[string]any) string {
	w, _ := wordingOf(key)
	text, own := d.Wording[key]
	if !own {
		text = w.In(d.Preset)
	}
	if len(w.Fields) == 0 && !strings.Contains(text, "{{") {
		return text
	}
	t, err := parseTemplate(key, text)
	if err != nil {
		return text
	}
	said, err := executeTemplate(t, fields)
	if err != nil {
		return text
	}
	return said
}

// wording checks that every key is one of a text, and that the text can be said.
func (c *checker) wording(at string, own map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(own)) {
		path := at + "." + key
		w, ok := wordingOf(key)
		if !ok {
			known := make([]string, 0, len(wordings))
			for _, w := range Wordings() {
				known = append(known, w.Key)
			}
			c.add(path, "got an unknown wording, want one of "+strings.Join(known, ", "))
			continue
		}
		c.that(strings.TrimSpace(own[key]) != "", path, "got nothing, want a text")
		if err := w.check(own[key]); err != nil {
			c.add(path, err.Error())
		}
	}
}

// check says whether the text can be said with the wording's fields.
func (w Wording) check(text string) error {
	t, err := parseTemplate(w.Key, text)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	for _, f := range w.Fields {
		fields[f] = "x"
	}
	if _, err := executeTemplate(t, fields); err != nil {
		return fmt.Errorf("%w; the fields are %s", err, strings.Join(w.Fields, ", "))
	}
	return nil
}
