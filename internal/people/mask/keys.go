package mask

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// services say how the keys of services begin and go on.
var services = []struct {
	prefixes string            // separated by spaces
	more     string            // signs that stand in one beside letters and digits
	least    int               // characters behind the prefix
	is       func(string) bool // of the whole key; nil = always
}{
	{"AKIA ASIA AROA AIDA ABIA ACCA", "", 12, func(s string) bool { return s == strings.ToUpper(s) }},
	{"sk- sk_ pk_ rk_ whsec_", "_-", 16, isGenerated},
	{"ghp_ gho_ ghu_ ghs_ ghr_", "", 16, nil},
	{"github_pat_", "_", 16, isRandomWord},
	{"glpat-", "_-", 16, nil},
	{"xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xapp-", "-", 16, isRandomWord},
	{"AIza", "_-", 30, nil},
	{"ya29.", "_-", 16, isRandomWord},
	{"SG.", "_-.", 33, isGenerated},
	{"npm_ hf_ dop_v1_ shpat_ lin_api_", "", 24, nil},
	{"pypi-", "_-", 24, isGenerated},
	{"eyJ", "_-.", 16, isToken},
}

// isGenerated reports whether a key is long enough, in one piece or altogether, to be generated.
func isGenerated(s string) bool {
	for _, piece := range strings.FieldsFunc(s, func(r rune) bool { return r == '-' || r == '_' || r == '.' }) {
		if len(piece) >= 16 && isRandomWord(piece) {
			return true
		}
	}
	return len(s) >= 40 && isMixedCase(s)
}

// isToken reports whether a text is a JSON Web Token: signed, whose header and claims are objects, or encrypted.
func isToken(s string) bool {
	parts := strings.Split(s, ".")
	switch {
	case len(parts) == 3:
		return isObject(parts[0]) && isObject(parts[1])
	case len(parts) == 5:
		return isObject(parts[0])
	}
	return false
}

func isObject(part string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && len(raw) > 0 && raw[0] == '{' && json.Valid(raw)
}

// findServiceKeys finds keys by their prefixes. A part of a path, of a file name or of an address is no key.
func (f *finder) findServiceKeys() {
	for _, s := range services {
		for prefix := range strings.FieldsSeq(s.prefixes) {
			f.each(prefix, func(at int) {
				if c := f.at(at - 1); isAlphanumeric(c) || c != 0 && strings.IndexByte("_-./\\", c) >= 0 {
					return
				}
				end := f.wordEnd(at+len(prefix), s.more, len(f.text))
				for end > at && f.text[end-1] == '.' { // of a sentence
					end--
				}
				key := f.text[at:end]
				if len(key) >= len(prefix)+s.least && !f.isWordPart(end) && (s.is == nil || s.is(key)) {
					f.hide(at, end)
				}
			})
		}
	}
	for _, path := range []string{"hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"} {
		f.each(path, func(at int) {
			from := at + len(path)
			end := f.wordEnd(from, "/", len(f.text))
			if last := from + strings.LastIndexByte(f.text[from:end], '/') + 1; end-last >= 8 && f.endsWord(end) {
				f.hide(last, end) // what stands before it says whose Slack it is
			}
		})
	}
}

// isWordPart reports whether the text at a place makes the word before it a part of something longer.
func (f *finder) isWordPart(at int) bool {
	c := f.at(at)
	return c != 0 && strings.IndexByte("_/@$`%", c) >= 0 || c == '.' && (isAlphanumeric(f.at(at+1))) || isAlphanumeric(c)
}

// each calls do with the places of a text, from the left to the right.
func (f *finder) each(of string, do func(at int)) {
	for at := 0; ; at += len(of) {
		next := strings.Index(f.text[at:], of)
		if next < 0 {
			return
		}
		at += next
		do(at)
	}
}

func (f *finder) findBearers() {
	for _, word := range []string{"Bearer ", "bearer ", "BEARER "} {
		f.each(word, func(at int) {
			r, _, ok := f.value(f.spaces(at + len(word)))
			key, long := f.text[r.From:r.To], r.To-r.From
			if ok && (long >= 20 && isRandomWord(key) || long >= 12 && isMixedCase(key)) && !isAlphanumeric(f.at(at-1)) {
				f.hide(r.From, r.To)
			}
		})
	}
}

// findPrivateKeys finds the lines of private keys: lines of base64 behind a key's header, and nothing else there.
func (f *finder) findPrivateKeys() {
	f.each("-----BEGIN ", func(at int) {
		from := at + len("-----BEGIN ")
		label, _, ok := strings.Cut(f.text[from:min(len(f.text), from+longestName)], "-----")
		if !ok || !strings.Contains(label, "PRIVATE KEY") {
			return
		}
		at = from + len(label) + len("-----")
		first := 0
		for {
			at = f.keyHeaders(f.lineStart(at))
			end := f.wordEnd(at, "+/=", len(f.text))
			line := f.text[at:end]
			if !isKeyLine(line, first) || f.lineStart(end) == end && !f.endsLine(end) &&
				!strings.HasPrefix(f.text[end:], "-----END ") {
				return
			}
			if f.at(f.spaces(end)) != 0 && f.spaces(end) == f.lineStart(end) && f.spaces(end) != end && len(line) < 60 {
				return // a word among others on a line
			}
			f.hide(at, end)
			if first == 0 {
				first = len(line)
			}
			if at = end; len(line) < first {
				return
			}
		}
	})
}

// lineStart is where the next line begins: behind spaces and line ends, be these spelled \n or \r\n.
func (f *finder) lineStart(at int) int {
	for {
		switch f.at(at) {
		case ' ', '\t', '\r', '\n':
			at++
			continue
		case '\\':
			end := at
			for f.at(end) == '\\' {
				end++
			}
			if f.at(end) == 'n' || f.at(end) == 'r' {
				at = end + 1
				continue
			}
		}
		return at
	}
}

// keyHeaders is the first place behind the headers that an encrypted key has.
func (f *finder) keyHeaders(at int) int {
	for _, header := range []string{"Proc-Type: ", "DEK-Info: ", "Version: "} {
		if strings.HasPrefix(f.text[at:], header) {
			if end := strings.IndexByte(f.text[at:], '\n'); end > 0 {
				at = f.lineStart(at + end)
			}
		}
	}
	return at
}

// isKeyLine reports whether a line is one of a key: first is how long its first one is, 0 of that itself. Only the last
// one is shorter, and a short one has to look like nothing that has a meaning.
func isKeyLine(line string, first int) bool {
	upper, lower := strings.ToLower(line) != line, strings.ToUpper(line) != line
	sign := strings.ContainsAny(line, "0123456789+/=")
	switch n := len(line); {
	case n == 0 || strings.HasPrefix(line, "/") && (n < 60 || strings.Contains(line, "//")):
		return false
	case first == 0:
		return n >= 16 && (line[0] == 'M' && line[1] <= 'P' || strings.HasPrefix(line, "b3BlbnNza") || n >= 60 && upper &&
			lower && sign)
	case n > first:
		return false
	case n >= 60:
		return upper && lower
	case n >= 16:
		return upper && lower && (sign || strings.HasPrefix(line, "MI"))
	}
	return strings.HasSuffix(line, "=") || isMixedCase(line)
}
