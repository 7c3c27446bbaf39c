package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/agent"
)

//go:embed templates
var files embed.FS

// Template is a page: the layout's templates and its own.
type Template struct {
	tree  *agent.Template
	limit int // of the page, in bytes
}

// maxPage is the longest page, in bytes: less than what a gateway takes of a function.
const maxPage = 5 << 20

// Parse reads the files of a page, the last of which is the page; the others are what it uses. It panics where one is wrong: they are part of the
// program.
func Parse(names ...string) *Template {
	texts := []string{file("layout.html"), file("parts.html")}
	for _, name := range names {
		texts = append(texts, file(name))
	}
	return parseTexts(names[len(names)-1], texts...)
}

// parseTexts makes a page of the texts of its files.
func parseTexts(name string, texts ...string) *Template {
	style, _ := styles()
	t, err := agent.ParseTemplate(name, strings.ReplaceAll(strings.Join(texts, ""), "/*style*/", style))
	if err != nil {
		panic(fmt.Sprintf("web: %v", err))
	}
	return &Template{t, maxPage}
}

func file(name string) string { return read(files, "templates/"+name) }

func read(from embed.FS, name string) string {
	text, err := from.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err))
	}
	return string(text)
}

// HTML is the page over plain data, every value of it escaped.
func (t *Template) HTML(data map[string]any) (string, error) {
	return t.tree.ExecuteEscaped(data, Escape, t.limit)
}

// Escape makes text harmless in HTML text, in a textarea or a title, and in a double-quoted attribute that is neither an address, a script nor a style:
// a test allows templates nothing else. It is what html/template does there, byte for byte.
func Escape(text string) string {
	var out strings.Builder
	from := 0
	for i := range len(text) {
		if as := escaped(text[i]); as != "" {
			out.WriteString(text[from:i])
			out.WriteString(as)
			from = i + 1
		}
	}
	out.WriteString(text[from:])
	return out.String()
}

// escaped is what stands for a byte; "" = itself.
func escaped(c byte) string {
	switch c {
	case 0:
		return "\uFFFD"
	case '"':
		return "&#34;"
	case '&':
		return "&amp;"
	case '\'':
		return "&#39;"
	case '+':
		return "&#43;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	}
	return ""
}

// sheet is the one style sheet, as it stands in every page: without comments, and without what would end it. It is made when it is first asked for, as
// all of this package is: a program that has no page carries none of it.
var sheet struct {
	once          sync.Once
	style, policy string
}

// styles are the style sheet and the policy that lets browsers use it: show the page in our style, post its forms to us, and nothing else (B5).
func styles() (style, policy string) {
	sheet.once.Do(func() {
		sheet.style = compact(file("style.css"))
		sum := sha256.Sum256([]byte(sheet.style))
		sheet.policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	})
	return sheet.style, sheet.policy
}

// compact leaves out comments and the white space at lines' beginnings.
func compact(css string) string {
	var out strings.Builder
	for css != "" {
		before, rest, found := strings.Cut(css, "/*")
		out.WriteString(before)
		if !found {
			break
		}
		_, css, _ = strings.Cut(rest, "*/")
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Harden tells browsers to keep a page to themselves: nothing else is loaded for it, nobody frames, stores, indexes or refers to it (B5).
func Harden(h http.Header) {
	_, policy := styles()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Robots-Tag", "noindex, nofollow, noarchive, nosnippet")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "accelerometer=(), camera=(), clipboard-read=(), display-capture=(), geolocation=(), microphone=(), payment=(), publickey-credentials-get=(), usb=()")
}

// harden is Harden with the server's own policy.
func (s *server) harden(h http.Header) {
	Harden(h)
	if s.policy != "" {
		h.Set("Content-Security-Policy", s.policy)
	}
}

// write answers with a page.
func (s *server) write(w http.ResponseWriter, status int, page string) {
	s.harden(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(page)) // the client is gone if this fails
}
