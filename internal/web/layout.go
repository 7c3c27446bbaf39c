package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"

	"github.com/countersign/countersign/internal/people/show"
)

//go:embed templates console
var files embed.FS

// Bounds of a page in bytes. Pages of links stay below the response limit of a gateway and function. The console has
// no gateway.
const (
	maxPage    = 5 << 20
	maxConsole = 32 << 20
)

// The pages of links, and those of the console with their own layout. They are parsed at their first use: most
// functions serve none.
var (
	linkPages = sync.OnceValue(func() *pageSet {
		return newPages(maxPage, "templates/parts.html", "templates/answer.html", "templates/plain.html",
			"templates/approval.html", "templates/signin.html")
	})
	consolePages = sync.OnceValue(func() *pageSet {
		return newPages(maxConsole, "console/parts.html", "templates/answer.html", "templates/plain.html",
			"templates/approval.html", "console/queue.html", "console/together.html", "console/runs.html",
			"console/run.html", "console/chat.html", "console/start.html", "console/agents.html", "console/agent.html",
			"console/audit.html")
	})
)

// pageSet is a set of pages with one layout. A page has the name of its file.
type pageSet struct {
	framed, joined *template.Template // joined shows each text in one piece
	limit          int                // of a page, in bytes
}

// newPages parses embedded pages. It panics on an error, since the pages are part of the program.
func newPages(limit int, names ...string) *pageSet {
	framed := template.New("").Option("missingkey=zero").Funcs(functions)
	layout := strings.ReplaceAll(readFile("templates/layout.html"), "/*style*/", style)
	template.Must(framed.New("layout.html").Parse(layout))
	for _, name := range names {
		template.Must(framed.New(name[strings.LastIndex(name, "/")+1:]).Parse(readFile(name)))
	}
	joined := template.Must(framed.Clone()).Funcs(template.FuncMap{
		"spans": func(t show.Text) []span { return joinSpans(readableSpans(t)) },
		"exact": func(t show.Text) []span { return joinSpans(exactSpans(t)) },
	})
	return &pageSet{framed, joined, limit}
}

// render executes a page. If the page is too long with frames around odd characters, it renders without frames.
// Nothing is cut (B2).
func (p *pageSet) render(name string, view any) ([]byte, error) {
	out := boundedPage{limit: p.limit}
	err := p.framed.ExecuteTemplate(&out, name, view)
	if errors.Is(err, errPageTooLong) {
		out = boundedPage{limit: p.limit}
		err = p.joined.ExecuteTemplate(&out, name, view)
	}
	if err != nil {
		return nil, fmt.Errorf("make page %s: %w", name, err)
	}
	return out.page, nil
}

var errPageTooLong = errors.New("the page is too long")

// boundedPage is a page of at most limit bytes.
type boundedPage struct {
	page  []byte
	limit int
}

// Write implements io.Writer.
func (b *boundedPage) Write(p []byte) (int, error) {
	if len(p) > b.limit-len(b.page) {
		return 0, errPageTooLong
	}
	b.page = append(b.page, p...)
	return len(p), nil
}

// readFile returns an embedded file.
func readFile(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err))
	}
	return string(text)
}

// style is the one style sheet, inline in every page. pagePolicy allows only this style and forms to this site (B5).
var (
	style      = compactCSS(readFile("templates/style.css"))
	pagePolicy = contentPolicy(style)
)

func contentPolicy(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// compactCSS removes comments and indentation.
func compactCSS(css string) string {
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

// SetSecurityHeaders sets the headers of a private page: browsers load nothing else for it, and do not frame, store,
// index or refer to it (B5).
func SetSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Robots-Tag", "noindex, nofollow, noarchive, nosnippet")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "accelerometer=(), camera=(), clipboard-read=(), display-capture=(), geolocation=(), "+
		"microphone=(), payment=(), publickey-credentials-get=(), usb=()")
}

// setSecurityHeaders is SetSecurityHeaders with the server's content policy.
func (s *server) setSecurityHeaders(h http.Header) {
	SetSecurityHeaders(h)
	if s.policy != "" {
		h.Set("Content-Security-Policy", s.policy)
	}
}

// writePage writes a page.
func (s *server) writePage(w http.ResponseWriter, status int, page []byte) {
	s.setSecurityHeaders(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // the client is gone if this fails
}
