package mask

import (
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// Range is a part of a text, in bytes.
type Range struct{ From, To int }

// form is how secrets of a kind look in a text. Those that are of a name and a value are secrets where the name says so.
type form struct {
	pattern string
	name    int                     // the group that is a name to be judged by SecretName; 0 = none
	values  []int                   // the groups that are the secret, of which one matches; nil = all of it
	is      func(value string) bool // nil = always
}

// forms are ordered: a later one adds to what an earlier one finds.
var forms = []form{
	{pattern: `-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----(?:[A-Za-z0-9+/=:,\s-]|\\[nr])*`},
	{pattern: `\b(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}\b`},
	{pattern: `\b(?:sk|pk|rk|whsec)[-_](?:live|test|proj|ant|or)?[-_]?[A-Za-z0-9_-]{16,}`, is: random},
	{pattern: `\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}|\bglpat-[A-Za-z0-9_-]{16,}`},
	{pattern: `\bxox[a-z]-[A-Za-z0-9-]{8,}|\bxapp-[A-Za-z0-9-]{8,}|\bhooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]+)`},
	{pattern: `\bAIza[A-Za-z0-9_-]{30,}|\bya29\.[A-Za-z0-9_-]{16,}|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|\b(?:npm|hf|dop_v1|shpat|pypi|lin_api)[_-][A-Za-z0-9]{24,}`},
	{pattern: `\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)*`},
	{pattern: `(?i)\b(?:bearer|basic|digest|token)\s+"?([A-Za-z0-9._~+/=-]{8,})`, values: []int{1}, is: random},
	{pattern: `\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#:@"'<>]*:([^\s/?#"'<>]+)@`, values: []int{1}},
	{pattern: `\b[A-Za-z][A-Za-z0-9+.-]*://([^\s/?#:@"'<>]{16,})@`, values: []int{1}, is: random},
	{pattern: `([\pL\pN_.-]+)\s*=\s*(?:\\?"((?:[^"\\]|\\[^"])*)\\?"?|'([^']*)'?|([^\s"';,&]+))`, name: 1, values: []int{2, 3, 4}, is: notACount},
	{pattern: `\\?["']([\pL\pN _.-]+?)\\?["']\s*:\s*(?:\\?"((?:[^"\\]|\\[^"])*)\\?"?|'([^']*)'?)`, name: 1, values: []int{2, 3}},
	{pattern: `(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key|secret)|api-key)\s*:[ \t]*([^\r\n"']+)`, values: []int{2}},
	{pattern: `([\pL\pN_-]+)\s*:[ \t]*([^\s"',;]{6,})`, name: 1, values: []int{2}, is: random},
	{pattern: `--?([\pL\pN-]+)[ \t]+(?:"([^"]*)"?|'([^']*)'?|([^\s"';,&-][^\s"';,&]*))`, name: 1, values: []int{2, 3, 4}},
}

// random reports whether a word is rather one of a generator than one of a language: it has letters and digits, signs, or capitals within.
func random(word string) bool {
	var digit, letter, capital, sign bool
	for i, r := range word {
		digit = digit || unicode.IsDigit(r)
		letter = letter || unicode.IsLetter(r)
		capital = capital || i > 0 && unicode.IsUpper(r)
		sign = sign || strings.ContainsRune("+/=", r)
	}
	return letter && (digit || capital && word != strings.ToUpper(word) || sign)
}

// notACount reports whether a value is more than a short number: tokens=5.
func notACount(value string) bool {
	return len(value) > 3 || strings.ContainsFunc(value, func(r rune) bool { return r < '0' || r > '9' })
}

// The forms are compiled when a text is first looked at: most functions that link this package never do.
var (
	compiling sync.Once
	compiled  []*regexp.Regexp
)

func patterns() []*regexp.Regexp {
	compiling.Do(func() {
		for _, f := range forms {
			compiled = append(compiled, regexp.MustCompile(f.pattern))
		}
	})
	return compiled
}

// Secrets are the parts of a text that have the form of a secret: keys of well-known services, JSON Web Tokens, private keys, the words
// behind Bearer, the passwords of addresses, and the values of assignments, headers, options and JSON members whose names say so. In order;
// they do not touch. Safe for concurrent use.
func Secrets(s string) []Range {
	var hidden []bool
	for i, p := range patterns() {
		for _, at := range p.FindAllStringSubmatchIndex(s, -1) {
			r, ok := forms[i].secret(s, at)
			if !ok {
				continue
			}
			if hidden == nil {
				hidden = make([]bool, len(s))
			}
			for j := r.From; j < r.To; j++ {
				hidden[j] = true
			}
		}
	}
	return ranges(hidden)
}

// secret is the part that a match says is one.
func (f form) secret(s string, at []int) (Range, bool) {
	r := Range{at[0], at[1]}
	for _, g := range f.values {
		if at[2*g] >= 0 {
			r = Range{at[2*g], at[2*g+1]}
		}
	}
	if f.name > 0 && !SecretName(s[at[2*f.name]:at[2*f.name+1]]) {
		return r, false
	}
	return r, r.From < r.To && (f.is == nil || f.is(s[r.From:r.To]))
}

func ranges(hidden []bool) []Range {
	var all []Range
	for i := 0; i < len(hidden); i++ {
		if !hidden[i] {
			continue
		}
		from := i
		for i < len(hidden) && hidden[i] {
			i++
		}
		all = append(all, Range{from, i})
	}
	return all
}
