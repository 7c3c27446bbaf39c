package scenario

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
)

// redactor replaces words, each by one of the same length and form. Different words stay different, so that comparisons
// of texts give the same results. Words that a definition compares with stay. A nil redactor replaces nothing.
type redactor struct {
	kept         map[string]bool   // in lower case
	replacements map[string]string // by word
	counts       map[string]int    // number of words of each form
}

var wordPattern = regexp.MustCompile(`[\p{L}\p{N}\p{M}]+`)

// prose has the keys of a definition whose words nothing compares with.
var prose = map[string]bool{
	"system": true, "description": true, "describe": true, "title": true, "note": true, "wording": true, "sections": true,
}

// keepWordsOf keeps the words of a definition or schema, except those of its prose.
func (w *redactor) keepWordsOf(v any) {
	var parsed any
	raw, err := json.Marshal(v)
	if w == nil || err != nil || json.Unmarshal(raw, &parsed) != nil {
		return
	}
	w.keepWords(parsed)
}

func (w *redactor) keepWords(v any) {
	switch v := v.(type) {
	case string:
		for _, word := range wordPattern.FindAllString(v, -1) {
			w.kept[strings.ToLower(word)] = true
		}
	case []any:
		for _, item := range v {
			w.keepWords(item)
		}
	case map[string]any:
		for key, item := range v {
			if _, isText := item.(string); !prose[key] || !isText && key != "wording" && key != "sections" {
				w.keepWords(key)
				w.keepWords(item)
			}
		}
	}
}

// text replaces the words of a text, and those of the strings in it where it is an object or a list of JSON.
func (w *redactor) text(s string) string {
	if w == nil {
		return s
	}
	if t := strings.TrimSpace(s); strings.ContainsAny(t[:min(len(t), 1)], "{[") && json.Valid([]byte(t)) {
		return string(eachString(json.RawMessage(t), w.text))
	}
	return wordPattern.ReplaceAllStringFunc(s, w.word)
}

func (w *redactor) word(word string) string {
	if w.kept[strings.ToLower(word)] {
		return word
	}
	if as, ok := w.replacements[word]; ok {
		return as
	}
	form := strings.Map(func(c rune) rune {
		switch {
		case unicode.IsDigit(c):
			return '1' // what is a number stays one
		case unicode.IsUpper(c):
			return 'A'
		default:
			return 'a'
		}
	}, word)
	for {
		n := w.counts[form]
		w.counts[form]++
		as := []byte(form)
		for i := len(as) - 1; i >= 0; i-- {
			base := 26
			if as[i] == '1' {
				base = 9
			}
			as[i] += byte(n % base)
			n /= base
		}
		for ; n > 0; n /= 26 { // there are more words of other alphabets than letters
			as = append(as, 'a'+byte(n%26))
		}
		if !w.kept[strings.ToLower(string(as))] {
			w.replacements[word] = string(as)
			return string(as)
		}
	}
}

// json replaces the words in the strings of a JSON value. Keys and numbers stay.
func (w *redactor) json(raw json.RawMessage) json.RawMessage {
	if w == nil {
		return raw
	}
	return eachString(raw, w.text)
}

// stringPattern finds the strings of JSON; those before a colon are keys.
var stringPattern = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?`)

// eachString replaces the strings of a JSON value, except keys.
func eachString(raw json.RawMessage, f func(string) string) json.RawMessage {
	return stringPattern.ReplaceAllFunc(raw, func(quoted []byte) []byte {
		var s string
		if quoted[len(quoted)-1] == ':' || json.Unmarshal(quoted, &s) != nil {
			return quoted
		}
		out := encode(f(s))
		return out[:len(out)-1]
	})
}
