package tool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
)

// Secrets are values that an operator keeps for the tools of a tenant: tokens, keys, passwords. Safe for concurrent
// use.
type Secrets interface {
	// Secret is the value of that name. One that there is not is ErrNoSecret; any other error may pass. No error holds a
	// value.
	Secret(ctx context.Context, tenant, name string) (string, error)
}

// ErrNoSecret is the error of a secret that nobody has stored.
var ErrNoSecret = errors.New("there is no such secret")

// NoSecrets has none.
type NoSecrets struct{}

// Secret is always ErrNoSecret.
func (NoSecrets) Secret(context.Context, string, string) (string, error) { return "", ErrNoSecret }

// MinSecret is how many bytes a secret has at least. A shorter one could not be told from other text when it comes
// back.
const MinSecret = 4

// Disclosure is one use of a tenant's secrets: it puts them into templates, and takes those that it has put in out of
// any text again. Make one with NewDisclosure for each call. Not safe for concurrent use.
type Disclosure struct {
	from   Secrets
	tenant string
	values map[string]string // by name
	echoes []echo            // by name
}

// NewDisclosure discloses secrets of a tenant. from may be nil: then there are none.
func NewDisclosure(from Secrets, tenant string) *Disclosure {
	if from == nil {
		from = NoSecrets{}
	}
	return &Disclosure{from: from, tenant: tenant, values: map[string]string{}}
}

// Expand puts secrets in the places of a template. An error names the secret, never its value.
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

// Value is a secret, which Redact knows from then on. It is read once.
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
	for lead := range 3 { // where it stands among the bytes that are encoded together
		from, to := (lead*8+5)/6, (lead+len(v))*8/6 // of what the secret alone determines
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

// Names are the secrets that were disclosed, sorted.
func (d *Disclosure) Names() []string { return slices.Sorted(maps.Keys(d.values)) }

// Redact puts ${secret:NAME} back where a disclosed secret stands in text: as it is, or as JSON, a URL, HTML,
// hexadecimal or base64 write it.
func (d *Disclosure) Redact(text string) string { return d.redact(text, false) }

// RedactCut is Redact of a text whose end is missing: it also takes out what a secret may begin with there.
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
