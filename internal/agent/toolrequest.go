package agent

import (
	"errors"
	"fmt"
	"strings"
)

// TemplatePart is a piece of a template of a tool that is somewhere else: a text, or what stands in its place when a call goes out.
// At most one of Secret and Arg is set; with neither, Text stands for itself.
type TemplatePart struct {
	Text   string
	Secret string // name of a secret: ${secret:NAME}
	Arg    string // top-level key of the arguments: {name}
}

// secretOpen is what a reference to a secret begins with; it ends with '}'.
const secretOpen = "${secret:"

// maxSecretName is how long a secret's name may be, in bytes.
const maxSecretName = 64

// ValidSecretName reports whether a secret may have that name: 1 to 64 letters, digits, '_', '-' and '.', not dots alone.
func ValidSecretName(name string) bool {
	return len(name) <= maxSecretName && strings.Trim(name, ".") != "" && onlyOf(name, "_-.")
}

// onlyOf reports whether s has nothing but letters and digits of ASCII and the others.
func onlyOf(s, others string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(others, c)
	})
}

// SecretParts takes a template apart at its ${secret:NAME}. Text that begins like one and is none is an error.
func SecretParts(template string) ([]TemplatePart, error) {
	var parts []TemplatePart
	for {
		text, after, found := strings.Cut(template, secretOpen)
		if text != "" {
			parts = append(parts, TemplatePart{Text: text})
		}
		if !found {
			return parts, nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !ValidSecretName(name) {
			return nil, fmt.Errorf("want ${secret:NAME} with a name of 1 to %d letters, digits, '_', '-' and '.'", maxSecretName)
		}
		parts, template = append(parts, TemplatePart{Secret: name}), rest
	}
}

// RequestParts takes a template apart at its ${secret:NAME} and {name}. Braces around anything but a name are text.
func RequestParts(template string) ([]TemplatePart, error) {
	around, err := SecretParts(template)
	var parts []TemplatePart
	for _, p := range around {
		if p.Secret != "" {
			parts = append(parts, p)
			continue
		}
		parts = append(parts, argParts(p.Text)...)
	}
	return parts, err
}

func argParts(text string) []TemplatePart {
	var parts []TemplatePart
	from := 0
	for at := 0; at < len(text); at++ {
		if text[at] != '{' {
			continue
		}
		name, _, closed := strings.Cut(text[at+1:], "}")
		if !closed || !validArg(name) {
			continue
		}
		if from < at {
			parts = append(parts, TemplatePart{Text: text[from:at]})
		}
		parts = append(parts, TemplatePart{Arg: name})
		from = at + len(name) + 2
		at = from - 1
	}
	if from < len(text) {
		parts = append(parts, TemplatePart{Text: text[from:]})
	}
	return parts
}

// maxArg is how long the name of an argument in a template may be, in bytes.
const maxArg = 128

func validArg(name string) bool {
	return name != "" && len(name) <= maxArg && onlyOf(name, "_-.$@[]") && !strings.HasPrefix(name, "-")
}

// RequestURL is an HTTPTool's URL taken apart: what is fixed, and templates.
type RequestURL struct {
	Origin string // scheme://host[:port]
	Path   string // a template, "" or beginning with '/', written as in a URL
	Query  []RequestParam
}

// RequestParam is one parameter of a query.
type RequestParam struct {
	Name  string // as in a URL
	Value string // a template, written as in a URL
}

// Request takes the URL apart. One whose scheme or host is a template, or that has a fragment, is an error.
func (h *HTTPTool) Request() (RequestURL, error) {
	scheme, rest, ok := strings.Cut(h.URL, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return RequestURL{}, errors.New("want http:// or https://, as it is")
	}
	at := strings.IndexAny(rest, "/?#")
	if at < 0 {
		at = len(rest)
	}
	host, rest := rest[:at], rest[at:]
	if host == "" || strings.ContainsAny(host, "{}$@\\ %") {
		return RequestURL{}, errors.New("want a host as it is, without a user; only path and query may have {name} and ${secret:NAME}")
	}
	u := RequestURL{Origin: scheme + "://" + host}
	var query string
	u.Path, query, _ = strings.Cut(rest, "?")
	if strings.Contains(rest, "#") {
		return RequestURL{}, errors.New("want no fragment: nobody is sent it")
	}
	if strings.ContainsFunc(rest, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune("\\\"<>^`|", c) }) {
		return RequestURL{}, errors.New("want path and query as in a URL, with other characters as %XX")
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); pair != "" {
			u.Query = append(u.Query, RequestParam{name, value})
		}
	}
	return u, nil
}

// HasBody reports whether a request of the method has a body that nobody wrote down: the arguments that nothing else takes.
func (h *HTTPTool) HasBody() bool {
	return h.Body == nil && (h.Method == "POST" || h.Method == "PUT" || h.Method == "PATCH")
}
