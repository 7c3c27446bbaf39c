package web

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/people"
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
	linkPages    = sync.OnceValue(func() *pageSet { return newPages(maxPage, "templates") })
	consolePages = sync.OnceValue(func() *pageSet { return newPages(maxConsole, "templates", "console") })
)

// pageSet is a set of pages with one layout. A page has the name of its file.
type pageSet struct {
	framed, joined *template.Template // joined shows each text in one piece
	limit          int                // of a page, in bytes
}

// newPages parses the embedded pages of folders; what a later folder defines anew replaces what an earlier one has. It
// panics on an error, since the pages are part of the program.
func newPages(limit int, folders ...string) *pageSet {
	framed := template.New("").Option("missingkey=zero").Funcs(functions)
	for _, folder := range folders {
		names, _ := fs.Glob(files, folder+"/*.html") // the pattern is valid
		for _, name := range names {
			text := strings.ReplaceAll(readFile(name), "/*style*/", style)
			template.Must(framed.New(path.Base(name)).Parse(text))
		}
	}
	joined := template.Must(framed.Clone()).Funcs(template.FuncMap{
		"spans": func(text any) people.Text { return joinSpans(readable(foreignText(text))) },
		"exact": func(text any) people.Text { return joinSpans(foreignText(text)) },
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
	styleSum   = sha256.Sum256([]byte(style))
	pagePolicy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleSum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// compactCSS removes comments and indentation.
func compactCSS(css string) string {
	css = regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAllString(css, "")
	var lines []string
	for line := range strings.Lines(css) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// setSecurityHeaders sets the headers of a private page: browsers load nothing else for it, and do not frame, store,
// index or refer to it (B5).
func setSecurityHeaders(h http.Header, policy string) {
	h.Set("Content-Security-Policy", policy)
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

// write writes a whole answer.
func (s *pageServer) write(w http.ResponseWriter, status int, mediaType string, body []byte) {
	setSecurityHeaders(w.Header(), s.policy)
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone if this fails
}

const htmlType = "text/html; charset=utf-8"

// renderPage writes a page from its view, or the error page.
func (s *pageServer) renderPage(w http.ResponseWriter, r *http.Request, status int, name string, view any, err error) {
	var page []byte
	if err == nil {
		page, err = s.pages.render(name, view)
	}
	if err != nil {
		s.writeFailure(w, r, err)
		return
	}
	s.write(w, status, htmlType, page)
}

// writeView writes a page of a set that is made without reading anything.
func (s *pageServer) writeView(w http.ResponseWriter, status int, name string, view any) {
	page, err := s.pages.render(name, view)
	if err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	s.write(w, status, htmlType, page)
}

// plainPage is the view of plain.html: a page that shows no request.
type plainPage struct {
	frame
	Heading, Text string
	SignIn        string // where to sign in; "" = not offered
}

func (s *pageServer) writePlain(w http.ResponseWriter, status int, page plainPage) {
	page.frame = s.frame
	if page.Title = page.Heading; page.Heading != "Countersign" {
		page.Title += " · Countersign"
	}
	s.writeView(w, status, "plain.html", page)
}

// linkServer writes pages with the layout of those behind links, for handlers that have no Pages.
func linkServer() *pageServer { return &pageServer{policy: pagePolicy, pages: linkPages()} }

// titles explain the marks in foreign text, as tooltips.
var titles = map[people.SpanKind]string{
	people.SpanEscape: "a character that cannot be seen, or could be taken for another",
	people.SpanCount:  "so many of them in a row",
	people.SpanMixed:  "letters or digits that look like other ones", people.SpanMasked: "a secret, which is not shown",
}

var functions = template.FuncMap{
	"spans": func(text any) people.Text { return readable(foreignText(text)) },
	"exact": foreignText, // arguments: each of their characters counts
	"title": func(k people.SpanKind) string { return titles[k] },
	"words": people.ConversationText, "arguments": newArguments, "nested": nested, "short": shortID,
	"status": newStatusLabel, "number": formatNumber, "usd": formatUSD,
	"second": func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") },
	// Of datetime attributes: of a time, and of one in a text.
	"machine": func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") },
	"datetime": func(text string) string {
		return strings.Replace(strings.TrimSuffix(text, " UTC"), " ", "T", 1) + "Z"
	},
	"places": func() []place { return places },
}

// foreignText returns a text of a page: one that is escaped already, or a string of anybody's.
func foreignText(text any) people.Text {
	if s, is := text.(string); is {
		return people.ForeignText(s)
	}
	return text.(people.Text)
}

// readable returns foreign text in which escaped line ends and indents are themselves.
func readable(t people.Text) (read people.Text) {
	for i, s := range t {
		if s.Kind == people.SpanEscape {
			switch s.Text {
			case `\r`:
				if i+1 < len(t) && t[i+1] == (people.Span{Text: `\n`, Kind: people.SpanEscape}) {
					continue
				}
			case `\n`, `\t`, `\"`, `\\`:
				s = people.Span{Text: notation[s.Text]}
			}
		}
		if s.Kind == people.SpanCount && len(read) > 0 && strings.HasSuffix(read[len(read)-1].Text, "\n") {
			var n int
			if _, err := fmt.Sscanf(s.Text, `\{%d spaces}`, &n); err == nil && n <= maxIndent {
				s = people.Span{Text: strings.Repeat(" ", n)}
			}
		}
		if n := len(read); n > 0 && s.Kind == people.SpanPlain && read[n-1].Kind == people.SpanPlain {
			read[n-1].Text += s.Text
			continue
		}
		read = append(read, s)
	}
	return read
}

// maxIndent is how many leading spaces are shown as such. More would move the line out of sight.
const maxIndent = 24

// notation maps the escapes of package people to their characters.
var notation = map[string]string{`\n`: "\n", `\t`: "\t", `\"`: `"`, `\\`: `\`}

// joinSpans joins spans into one without frames. Only the marks are lost.
func joinSpans(t people.Text) people.Text {
	if len(t) < 2 {
		return t
	}
	return people.Text{{Text: t.String()}}
}

// Bounds of arguments shown line by line, where each line takes about 300 bytes of HTML. Longer arguments are shown
// as one text, still complete (B2).
const (
	maxLines = 4000
	maxSpans = 12_000
	maxDepth = 4 // that is indented
)

// arguments are a call's arguments: line by line, or as one text.
type arguments struct {
	Plain string
	Lines []people.Row
}

// newArguments prepares arguments for the template "arguments"; nil for none.
func newArguments(all []people.Row) *arguments {
	if len(all) == 0 {
		return nil
	}
	if len(all) > maxLines || countSpans(all) > maxSpans {
		return &arguments{Plain: joinArguments(all)}
	}
	return &arguments{Lines: nested(all)}
}

// nested marks what is deeper than a page indents: no two values may look alike.
func nested(all []people.Row) []people.Row {
	all = slices.Clone(all)
	for i, l := range all {
		if deep := l.Depth - maxDepth; deep > 0 {
			all[i].Depth = maxDepth
			all[i].Label = slices.Concat(people.Text{{Text: strings.Repeat("› ", deep)}}, l.Label)
		}
	}
	return all
}

func countSpans(all []people.Row) (n int) {
	for _, a := range all {
		n += len(a.Label) + len(a.Value)
	}
	return n
}

// joinArguments returns the text of arguments. What is deeper than a page indents has its depth as a number, since
// spaces would make a page of many deep values too large.
func joinArguments(all []people.Row) string {
	var out strings.Builder
	for _, a := range all {
		out.WriteString(strings.Repeat(" ", min(a.Depth, maxDepth)))
		if a.Depth > maxDepth {
			fmt.Fprintf(&out, "%d› ", a.Depth)
		}
		out.WriteString(a.Label.String())
		out.WriteString(": ")
		out.WriteString(a.Value.String())
		out.WriteByte('\n')
	}
	return out.String()
}

// formatSize formats a number of bytes for people.
func formatSize(n int) string {
	if n < 10_000 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d KB", (n+512)/1024)
}
