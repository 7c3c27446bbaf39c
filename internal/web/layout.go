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

	"github.com/countersign/countersign/internal/people/show"
)

//go:embed templates console
var files embed.FS

// The longest page, in bytes: of a link's pages less than what a gateway takes of a function. No gateway stands before
// the console; what its pages take of foreign texts is bounded below that.
const (
	maxPage    = 5 << 20
	maxConsole = 32 << 20
)

// The pages behind links, and those of the console, which have a layout of their own.
var (
	linkPages = newPages(maxPage, "templates/parts.html", "templates/plain.html", "templates/approval.html",
		"templates/signin.html")
	consolePages = newPages(maxConsole, "console/parts.html", "templates/plain.html", "templates/approval.html",
		"console/home.html", "console/run.html")
)

// pageSet is some pages in one layout. The name of a page is its file's.
type pageSet struct {
	framed, joined *template.Template // joined shows each text in one piece
	limit          int                // of a page, in bytes
}

// newPages parses pages. It panics where one is wrong: they are part of the program.
func newPages(limit int, names ...string) *pageSet {
	framed := template.New("").Option("missingkey=zero").Funcs(functions)
	layout := strings.ReplaceAll(read("templates/layout.html"), "/*style*/", style)
	template.Must(framed.New("layout.html").Parse(layout))
	for _, name := range names {
		template.Must(framed.New(name[strings.LastIndex(name, "/")+1:]).Parse(read(name)))
	}
	joined := template.Must(framed.Clone()).Funcs(template.FuncMap{
		"spans": func(t show.Text) []span { return inOnePiece(spans(t)) },
		"exact": func(t show.Text) []span { return inOnePiece(exact(t)) },
	})
	return &pageSet{framed, joined, limit}
}

// html is a page over its view. A page that is too long with a frame around each odd character is made without frames:
// nothing is cut (B2).
func (p *pageSet) html(name string, view any) ([]byte, error) {
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

// read is the text of an embedded file.
func read(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err))
	}
	return string(text)
}

// style is the one style sheet, as it stands in every page. pagePolicy lets browsers show the page in it and post its
// forms to us, and nothing else (B5).
var (
	style      = compact(read("templates/style.css"))
	pagePolicy = policyOf(style)
)

func policyOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
	h.Set("Content-Security-Policy", pagePolicy)
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
func (s *server) write(w http.ResponseWriter, status int, page []byte) {
	s.harden(w.Header())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page) // the client is gone if this fails
}
