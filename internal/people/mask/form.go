package mask

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Range is a part of a text, in bytes.
type Range struct{ From, To int }

// Secrets returns the parts of a text that have the form of a secret, in order and not touching: keys of well-known
// services, JSON Web Tokens, the lines of private keys, the words behind Bearer, the passwords of addresses, and the
// values of assignments, headers, options and JSON members with telling names. It finds only what cannot be anything
// else: the author of a text chooses its names, and must not be able to hide a command or a payee behind one. A value
// that a shell, a parser of addresses or another reader could take for more is therefore not masked; see runEnd. The
// cost is linear in the text. Safe for concurrent use.
func Secrets(s string) []Range {
	f := finder{text: s}
	f.findPrivateKeys()
	f.findServiceKeys()
	f.findBearers()
	f.findNamed()
	return f.merged()
}

type finder struct {
	text             string
	found            []Range
	used             map[string]bool // the variables that the text refers to; nil = not looked for yet
	runFrom, runStop int             // the last run that runEnd has measured
}

func (f *finder) hide(from, to int) { f.found = append(f.found, Range{from, to}) }

// take hides a range and returns its last place.
func (f *finder) take(r Range) int {
	f.hide(r.From, r.To)
	return r.To - 1
}

func (f *finder) merged() []Range {
	slices.SortFunc(f.found, func(a, b Range) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	var all []Range
	for _, r := range f.found {
		if n := len(all); n > 0 && r.From < all[n-1].To {
			all[n-1].To = max(all[n-1].To, r.To)
			continue
		}
		all = append(all, r)
	}
	return all
}

// at returns the byte at a place; 0 if there is none.
func (f *finder) at(i int) byte {
	if i < 0 || i >= len(f.text) {
		return 0
	}
	return f.text[i]
}

// signs are what a secret may hold beside letters and digits.
const signs = "!#*+-./:=?^_~"

// runEnd returns where the run of characters ends that begins at a place and can only be a value: no white space, line
// end, quote, backslash, @, comma, bracket or any of $ ( ) ` ; | & < >, neither plain nor percent-encoded.
func (f *finder) runEnd(at int) int {
	if f.runFrom <= at && at < f.runStop {
		return f.runStop
	}
	f.runFrom = at
	for at < len(f.text) {
		n := plainAt(f.text[at:])
		if n == 0 {
			break
		}
		at += n
	}
	f.runStop = at
	return at
}

// plainAt returns the size in bytes of the character that a text begins with, if a secret may contain it; else 0.
func plainAt(s string) int {
	c := s[0]
	switch {
	case c == '%':
		d, err := strconv.ParseUint(s[1:min(3, len(s))], 16, 8)
		if err == nil && len(s) >= 3 && d != '%' && d < utf8.RuneSelf && plainAt(string(rune(d))) > 0 {
			return 3
		}
		return 0
	case c < utf8.RuneSelf:
		if isAlphanumeric(c) || strings.IndexByte(signs, c) >= 0 {
			return 1
		}
		return 0
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
		return 0
	}
	return n
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

// isOpaque reports whether a value has only characters of secrets, commas included, and is no reference.
func isOpaque(s string) bool {
	for at := 0; at < len(s); {
		n := plainAt(s[at:])
		if n == 0 && s[at] == ',' {
			n = 1
		}
		if n == 0 {
			return false
		}
		at += n
	}
	return s != "" && !isReference(s)
}

// isReference reports whether a value refers to something: an address, a file, an account, another value. Such a value
// is no secret, whatever its name says.
func isReference(s string) bool {
	lower := strings.ToLower(s[:min(len(s), 40)])
	equals := max(strings.IndexByte(s[:min(len(s), 256)], '='), 0)
	switch {
	case equals > 0 && strings.Trim(s[equals:], "=") != "": // base64 ends with it
		return true
	case strings.Contains(lower, "://"), strings.HasPrefix(lower, "arn:"), strings.HasPrefix(lower, "mailto:"):
		return true
	case strings.HasPrefix(s, "./"), strings.HasPrefix(s, "../"), strings.HasPrefix(s, "~/"):
		return true
	case s[0] == '/': // base64 may begin so
		return len(s) < 20 || !isMixedCase(s) || strings.ContainsAny(s[:min(len(s), 256)], ".-_")
	case len(s) == 42 && strings.HasPrefix(lower, "0x"):
		return strings.Trim(s[2:], "0123456789abcdefABCDEF") == ""
	}
	return isIBAN(s)
}

// isIBAN reports whether a text is the number of a bank account: two letters, digits, and the right checksum (ISO
// 13616).
func isIBAN(s string) bool {
	if len(s) < 15 || len(s) > 34 || !isUpper(s[0]) || !isUpper(s[1]) {
		return false
	}
	rest := 0
	for _, c := range []byte(s[4:] + s[:4]) {
		switch {
		case '0' <= c && c <= '9':
			rest = (rest*10 + int(c-'0')) % 97
		case isUpper(c):
			rest = (rest*100 + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return rest == 1
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// isMixedCase reports whether a text has capitals, small letters and digits near its beginning.
func isMixedCase(s string) bool {
	var upper, lower, digit bool
	for _, c := range []byte(s[:min(len(s), 256)]) {
		upper, lower, digit = upper || isUpper(c), lower || 'a' <= c && c <= 'z', digit || '0' <= c && c <= '9'
	}
	return upper && lower && digit
}

// isRandomWord reports whether a word looks generated: it has letters and digits, signs, or capitals within.
func isRandomWord(word string) bool {
	var digit, letter, capital, sign bool
	for i, r := range word[:min(len(word), 256)] {
		digit = digit || unicode.IsDigit(r)
		letter = letter || unicode.IsLetter(r)
		capital = capital || i > 0 && unicode.IsUpper(r)
		sign = sign || strings.ContainsRune("+/=", r)
	}
	return letter && (digit || capital && word != strings.ToUpper(word) || sign)
}

// endsWord reports whether the word before a place ends there for a shell, a query or a list. In a shell a word
// continues behind a quote.
func (f *finder) endsWord(at int) bool {
	if mark, quoted := f.quote(at); quoted {
		at += len(mark)
	}
	return at == len(f.text) || strings.IndexByte(" \t\r\n;,&|)<>}]", f.text[at]) >= 0
}

// quote is the quotation mark that stands at a place, with the backslashes before it.
func (f *finder) quote(at int) (mark string, ok bool) {
	end := at
	for f.at(end) == '\\' && end < at+8 {
		end++
	}
	if c := f.at(end); c != '"' && c != '\'' {
		return "", false
	}
	return f.text[at : end+1], true
}

// value is the value that begins at a place: in quotes, which have to close right behind it, or on its own.
func (f *finder) value(at int) (r Range, quoted, ok bool) {
	mark, quoted := f.quote(at)
	r = Range{at + len(mark), f.runEnd(at + len(mark))}
	switch {
	case r.From == r.To, !quoted && !f.endsWord(r.To), quoted && !strings.HasPrefix(f.text[r.To:], mark):
		return r, quoted, false
	}
	return r, quoted, !isReference(f.text[r.From:r.To])
}

// wordEnd returns the first place from at on that has neither an ASCII letter or digit nor one of these signs, or the
// place behind the maximum length.
func (f *finder) wordEnd(at int, signs string, longest int) int {
	for stop := min(len(f.text), at+longest); at < stop; at++ {
		if !isAlphanumeric(f.text[at]) && strings.IndexByte(signs, f.text[at]) < 0 {
			break
		}
	}
	return at
}

// spaces is the first place from at on where no space or tab stands.
func (f *finder) spaces(at int) int {
	for c := f.at(at); c == ' ' || c == '\t'; c = f.at(at) {
		at++
	}
	return at
}

// longestName is how long a name is at most, in bytes.
const longestName = 64

// nameBefore returns the name that ends at a place; "" if there is none. In quotes it may contain spaces.
func (f *finder) nameBefore(end int, quoted bool) (name string, from int) {
	from = end
	for from > 0 && end-from < longestName {
		r, n := utf8.DecodeLastRuneInString(f.text[:from])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r) && (!quoted || r != ' ') {
			break
		}
		from -= n
	}
	return f.text[from:end], from
}

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
	{"glpat-", "_-.", 16, nil},
	{"glagent- glcbt- gldt- glffct- glft- glimt- gloas- glptt- glrt- glsoat-", "_-.", 16, isRandomWord},
	{"xoxa- xoxb- xoxe- xoxe.xoxb- xoxe.xoxp- xoxo- xoxp- xoxr- xoxs- xapp-", "-", 16, isRandomWord},
	{"AIza", "_-", 30, nil},
	{"ya29.", "_-", 16, isRandomWord},
	{"SG.", "_-.", 33, isGenerated},
	{"npm_ hf_ dop_v1_ shpat_ lin_api_", "", 24, nil},
	{"pypi- AGE-SECRET-KEY- api_org_ dapi dckr_pat_ doo_v1_ dor_v1_ dp.pt. dt0c01. duffel_ fo1_ glsa_ gsk_ hvb. hvs. " +
		"LTAI nfp_ ntn_ PMAK- pnu_ pplx- pscale_ pul- r8_ rdme_ rubygems_ sgp_ shippo_ shpca_ shppa_ shpss_ sntryu_ " +
		"sq0atp- sq0csp- tskey- xai- xkeysib-", "_-.", 20, isGenerated},
	{"ABSK glc_ ops_eyJ sntrys_", "_-+/=", 24, isGenerated},
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

// lineStart returns where the next line begins: behind spaces and line ends, also those spelled \n or \r\n.
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

// keyHeaders returns the first place behind the headers of an encrypted key.
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
