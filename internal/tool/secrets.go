package tool

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
)

// Secrets holds values that an operator stores for a tenant's tools: tokens, keys, passwords. Safe for concurrent use.
type Secrets interface {
	// Secret returns the value of that name. A missing one is ErrNoSecret; after any other error a retry may succeed. No
	// error contains a value.
	Secret(ctx context.Context, tenant, name string) (string, error)
}

// ErrNoSecret is the error of a secret that is not stored.
var ErrNoSecret = errors.New("there is no such secret")

// NoSecrets is a Secrets without any secret.
type NoSecrets struct{}

// Secret always returns ErrNoSecret.
func (NoSecrets) Secret(context.Context, string, string) (string, error) { return "", ErrNoSecret }

// MinSecret is the shortest secret in bytes. A shorter one could not be told from other text in a result.
const MinSecret = 4

// Disclosure is one use of a tenant's secrets. It fills them into templates, and removes those it has filled in from
// any text. Use NewDisclosure for each call. Not safe for concurrent use.
type Disclosure struct {
	from   Secrets
	tenant string
	values map[string]string // by name
	echoes []echo            // by name
}

// NewDisclosure returns a Disclosure of a tenant's secrets. A nil from has no secrets.
func NewDisclosure(from Secrets, tenant string) *Disclosure {
	return &Disclosure{from: cmp.Or[Secrets](from, NoSecrets{}), tenant: tenant, values: map[string]string{}}
}

// Expand fills secrets into a template. An error names the secret, never its value.
func (d *Disclosure) Expand(ctx context.Context, template string) (string, error) {
	parts, err := agent.SecretParts(template)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		text := p.Text
		if p.Secret != "" {
			if text, err = d.Value(ctx, p.Secret); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Value returns a secret, which Redact removes from then on. It is read once.
func (d *Disclosure) Value(ctx context.Context, name string) (string, error) {
	if v, ok := d.values[name]; ok {
		return v, nil
	}
	v, err := d.from.Secret(ctx, d.tenant, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("read secret %s: %w", name, err)
	case len(v) < MinSecret:
		return "", fmt.Errorf("read secret %s: want at least %d bytes, got fewer", name, MinSecret)
	}
	d.values[name] = v
	e := echo{name: name, secret: v}
	for rest := v; rest != ""; {
		_, size := utf8.DecodeRuneInString(rest)
		e.chars = append(e.chars, character{rest[:size], escapes(rest[:size])})
		rest = rest[size:]
	}
	first := string(hexDigits[v[0]>>4])
	for _, c := range []byte(v[:1] + first + strings.ToUpper(first) + `%&\`) {
		e.starts[c] = true
	}
	e.starts['+'] = e.starts['+'] || v[0] == ' '
	for lead := range 3 { // position in the group of three bytes that base64 encodes together
		from, to := (lead*8+5)/6, (lead+len(v))*8/6 // the part that depends on the secret alone
		for _, form := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := form.EncodeToString([]byte(strings.Repeat("\x00", lead) + v))[from:to]
			if len(text) >= MinSecret {
				e.base64, e.starts[text[0]] = append(e.base64, text), true
			}
		}
	}
	d.echoes = append(d.echoes, e)
	slices.SortFunc(d.echoes, func(a, b echo) int { return strings.Compare(a.name, b.name) })
	return v, nil
}

// Names returns the names of the disclosed secrets, sorted.
func (d *Disclosure) Names() []string { return slices.Sorted(maps.Keys(d.values)) }

// Redact replaces each disclosed secret in text by ${secret:NAME}, whether it is written plainly or in JSON, a URL,
// HTML, hexadecimal or base64.
func (d *Disclosure) Redact(text string) string { return d.redact(text, false) }

// RedactCut is Redact for a truncated text. It also removes the beginning of a secret at the text's end.
func (d *Disclosure) RedactCut(text string) string { return d.redact(text, true) }

func (d *Disclosure) redact(text string, missing bool) string {
	if len(d.echoes) == 0 {
		return text
	}
	var out strings.Builder
	from := 0
	for at := 0; at < len(text); {
		longest, name, open := 0, "", false
		for i := range d.echoes {
			n, cut := d.echoes[i].at(text[at:])
			if open = open || cut; n > longest {
				longest, name = n, d.echoes[i].name
			}
		}
		switch {
		case open && missing:
			return out.String() + text[from:at]
		case longest == 0:
			at++
		default:
			out.WriteString(text[from:at] + "${secret:" + name + "}")
			at += longest
			from = at
		}
	}
	return out.String() + text[from:]
}

// echo finds a secret in a text in any spelling: plain, hexadecimal, base64, or character by character with escapes as
// in JSON, URLs, HTML and program texts. The cost at each position is bounded by the secret's length.
type echo struct {
	name   string
	secret string
	chars  []character
	base64 []string
	starts [256]bool // the bytes with which a spelling may begin
}

// character is one character of a secret, with its lower-case escapes behind backslashes.
type character struct {
	text    string
	escapes []string
}

// at returns the length of the secret's spelling at the beginning of text, or 0. open reports whether text begins with
// a spelling whose end is missing.
func (e *echo) at(text string) (n int, open bool) {
	if !e.starts[text[0]] {
		return 0, false
	}
	if e.mayBegin(text) {
		n, open = e.spelled(text)
	}
	m, cut := e.hexadecimal(text)
	n, open = max(n, m), open || cut
	for _, form := range e.base64 {
		if strings.HasPrefix(text, form) {
			n = max(n, len(form))
		}
		open = open || strings.HasPrefix(form, text)
	}
	return n, open
}

// mayBegin checks the next few bytes to decide whether the secret can be spelled there, because many escapes are of
// something else.
func (e *echo) mayBegin(text string) bool {
	if text[0] == e.secret[0] || len(text) <= deepest {
		return true
	}
	switch text[0] {
	case '%':
		n, _ := hexByte(text[1:], e.secret[0])
		return n > 0 || text[1:3] == "25"
	case '&':
		return text[1] != '&' && text[1] != ' '
	case '\\':
		end := strings.IndexFunc(text[:deepest+1], func(r rune) bool { return r != '\\' })
		return end > 0 &&
			(text[end] == 'u' || text[end] == 'x' || text[end]|0x20 == e.chars[0].escapes[len(e.chars[0].escapes)-1][0]|0x20 ||
				'0' <= text[end] && text[end] <= '7' || text[end] == '&' || text[end] == '%')
	}
	return true
}

// spelled reads the secret character by character. A character may have spellings of several lengths at one position.
func (e *echo) spelled(text string) (n int, open bool) {
	var here, next [2 * deepest]int // the positions reached so far
	ends := here[:1]
	for _, c := range e.chars {
		reached := next[:0]
		for _, from := range ends {
			open = c.spellings(text[from:], func(n int) {
				if len(reached) < cap(reached) && !slices.Contains(reached, from+n) {
					reached = append(reached, from+n)
				}
			}) || open
		}
		if len(reached) == 0 {
			return 0, open
		}
		ends = here[:copy(here[:], reached)]
	}
	return slices.Max(ends), open
}

// deepest is how often an escape may be escaped again.
const deepest = 8

// spellings calls take with the length of each spelling of the character at the beginning of text. cut reports whether
// text may end within a spelling.
func (c character) spellings(text string, take func(n int)) (cut bool) {
	add := func(n int, open bool) {
		if n > 0 {
			take(n)
		}
		cut = cut || open
	}
	if strings.HasPrefix(text, c.text) {
		take(len(c.text))
	} else {
		add(0, strings.HasPrefix(c.text, text))
	}
	if text == "" {
		return true
	}
	switch text[0] {
	case '+':
		if c.text == " " {
			take(1)
		}
	case '%':
		add(bytesBehind(text, "%", c.text))
	case '&':
		add(entity(text, c.text))
	case '\\':
		end := 0
		for end < min(len(text), deepest) && text[end] == '\\' {
			end++
			if c.text == `\` && end > 1 {
				take(end)
			}
		}
		n, open := c.escaped(text[end:])
		if n > 0 {
			n += end
		}
		add(n, open)
		add(bytesBehind(text, `\x`, c.text))
		// an escape of HTML or a URL behind a backslash
		if sign := c.escapes[len(c.escapes)-1] == c.text; sign && end < len(text) && text[end] != '\\' {
			cut = c.spellings(text[end:], func(n int) { take(end + n) }) || cut
		}
	}
	return cut
}

// bytesBehind reads a character's bytes in hexadecimal, each after a mark: %41, or %2541 if escaped again; \x41, or
// \\x41.
func bytesBehind(text, mark, character string) (n int, cut bool) {
	for i := range len(character) {
		for m := 0; mark == `\x` && m < deepest && strings.HasPrefix(text[n:], `\\`); m++ {
			n++
		}
		if !strings.HasPrefix(text[n:], mark) {
			return 0, strings.HasPrefix(mark, text[n:])
		}
		n += len(mark)
		for m := 0; mark == "%" && character[i] != '%' && m < deepest && strings.HasPrefix(text[n:], "25"); m++ {
			n += 2
		}
		size, cut := hexByte(text[n:], character[i])
		if size == 0 {
			return 0, cut
		}
		n += size
	}
	return n, false
}

// controls are the letters with which JSON escapes control characters.
var controls = map[string]string{"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

const hexDigits = "0123456789abcdef"

// hexByte reads the byte c in hexadecimal. It returns 2, or 0 if the text has another byte.
func hexByte(text string, c byte) (n int, cut bool) {
	for i, digit := range []byte{hexDigits[c>>4], hexDigits[c&0xF]} {
		if i == len(text) {
			return 0, true
		}
		if t := text[i]; t != digit && (t < 'A' || t|0x20 != digit) {
			return 0, false
		}
	}
	return 2, false
}

// escapes returns what may follow a backslash for a character: u0041, u{41}, 101, the letter of a control character, or
// a sign itself.
func escapes(text string) []string {
	r, _ := utf8.DecodeRuneInString(text)
	forms := []string{fmt.Sprintf("u%04x", r), fmt.Sprintf("u{%x}", r), fmt.Sprintf("u{%04x}", r), fmt.Sprintf("%03o", r)}
	if high, low := utf16.EncodeRune(r); r > 0xFFFF {
		forms[0] = fmt.Sprintf(`u%04x\u%04x`, high, low)
	}
	if letter, ok := controls[text]; ok {
		forms = append(forms, letter)
	}
	// a backslash changes the meaning of a letter or digit
	if r > ' ' && r < utf8.RuneSelf && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') {
		forms = append(forms, text)
	}
	return forms
}

// escaped reads one of the character's escapes.
func (c character) escaped(text string) (n int, cut bool) {
	for _, form := range c.escapes {
		if len(text) >= len(form) && strings.EqualFold(text[:len(form)], form) {
			return len(form), false
		}
		cut = cut || len(text) < len(form) && strings.EqualFold(form[:len(text)], text)
	}
	return 0, cut
}

// longestEntity is the longest entity of HTML in bytes, including the escapes of its own &.
const longestEntity = 40

// entity reads &#65; &#x41; &amp; and others, and those whose & was escaped again: &amp;#65;.
func entity(text, character string) (n int, cut bool) {
	end := 1
	for m := 0; m < deepest && strings.HasPrefix(text[end:], "amp;"); m++ {
		if character == "&" && m > 0 {
			break
		}
		end += len("amp;")
	}
	if character == "&" && end > 1 {
		return end, false
	}
	rest := text[end:min(len(text), end+longestEntity)]
	last := strings.IndexFunc(rest,
		func(r rune) bool { return r != '#' && (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') })
	if last < 0 {
		return 0, len(rest) < longestEntity
	}
	if rest[last] == ';' {
		last++
	}
	if html.UnescapeString("&"+rest[:last]) == character {
		return end + last, false
	}
	return 0, false
}

// between lists what may separate two bytes in hexadecimal.
var between = []string{"", ":", "-", " ", ", 0x", ",0x", " 0x"}

// hexadecimal reads the secret's bytes in hexadecimal, upper or lower case.
func (e *echo) hexadecimal(text string) (n int, open bool) {
	for i := range len(e.secret) {
		found := false
		for _, gap := range between {
			if i > 0 && n < len(text) && len(text)-n < len(gap) && strings.HasPrefix(gap, text[n:]) {
				open = true
			}
			if i == 0 && gap != "" || !strings.HasPrefix(text[n:], gap) {
				continue
			}
			if size, cut := hexByte(text[n+len(gap):], e.secret[i]); size > 0 {
				n, found = n+len(gap)+size, true
				break
			} else if cut {
				return 0, true
			}
		}
		if !found {
			return 0, open
		}
	}
	return n, open
}
