package letter

import (
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/people/show"
)

// The styles of a mail, inline: clients drop everything else. No colour is set but of borders, so that it reads on light and dark.
const (
	styleBody  = "margin:0;padding:16px;font:16px/1.5 sans-serif;max-width:640px"
	styleH1    = "font-size:20px;line-height:1.3;margin:0 0 12px"
	styleH2    = "font-size:16px;margin:24px 0 4px"
	styleTold  = "margin:0 0 12px"
	styleLines = "border-left:3px solid #888888;padding:4px 0 4px 12px;font-family:monospace;font-size:14px;overflow-wrap:anywhere;word-break:break-word;white-space:pre-wrap"
	styleLink  = "display:inline-block;padding:12px 20px;border:2px solid #3366cc;border-radius:6px;font-weight:bold;text-decoration:none"
	styleEntry = "font-weight:bold"
	styleMark  = "border:1px solid #888888;border-radius:3px;padding:0 2px"
	styleSmall = "font-size:13px;margin:24px 0 0"
)

// escape is html.EscapeString, which brings the start of its package into every function that links this one.
func escape(t string) string {
	var b strings.Builder
	for i := range len(t) {
		switch t[i] {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '"':
			b.WriteString("&#34;")
		case '\'':
			b.WriteString("&#39;")
		default:
			b.WriteByte(t[i])
		}
	}
	return b.String()
}

// document builds HTML: names of elements and attributes are constants, and everything else is escaped on its way in.
type document struct{ strings.Builder }

// open begins an element; attributes are names and values in turn.
func (d *document) open(element string, attributes ...string) {
	d.WriteString("<" + element)
	for i := 0; i+1 < len(attributes); i += 2 {
		d.WriteString(" " + attributes[i] + `="` + escape(attributes[i+1]) + `"`)
	}
	d.WriteString(">")
}

func (d *document) text(t string)        { d.WriteString(escape(t)) }
func (d *document) close(element string) { d.WriteString("</" + element + ">") }

// element is one with text alone.
func (d *document) element(name, style, text string) {
	d.open(name, "style", style)
	d.text(text)
	d.close(name)
}

// spans is foreign text: what was put in place of something else is framed and moves nothing beside it, in whichever direction it is written.
func (d *document) spans(t show.Text) {
	for _, s := range t {
		if s.Kind == show.Plain {
			d.text(s.Text)
			continue
		}
		d.element("bdi", styleMark, show.Text{s}.String())
	}
}

// html is the letter as a document of its own, readable on a phone, with inline styles alone.
func (l Letter) html() string {
	var d document
	d.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">` +
		`<meta name="color-scheme" content="light dark"><meta name="supported-color-schemes" content="light dark"><title>`)
	d.text(l.Subject)
	d.WriteString("</title></head>")
	d.open("body", "style", styleBody)
	d.element("h1", styleH1, l.Subject)
	d.element("p", styleTold, l.Opening)
	if l.Short {
		d.element("p", styleTold, TooLong)
	}
	for _, s := range l.Sections {
		d.section(s)
	}
	if l.IsMany() {
		d.entries(l)
	} else {
		d.invite(l)
		d.element("p", styleSmall, "Request "+l.ID)
		d.element("p", styleSmall, footer)
	}
	d.WriteString("</body></html>\n")
	return d.String()
}

func (d *document) section(s Section) {
	d.element("h2", styleH2, s.Title)
	d.open("div", "style", styleLines, "dir", "ltr")
	for _, line := range s.Lines {
		d.open("div", "style", "padding-left:"+strconv.Itoa(16*line.Depth)+"px")
		if len(line.Label) > 0 {
			d.open("b")
			d.spans(line.Label)
			d.text(":")
			d.close("b")
			d.text(" ")
		}
		d.spans(line.Value)
		d.close("div")
	}
	d.close("div")
}

// invite is the one link there is of a letter about one request. SES takes ses:no-track for itself and leaves the link
// as it is.
func (d *document) invite(l Letter) {
	if l.Link == "" {
		d.element("p", styleTold, l.invitation())
		return
	}
	d.open("p", "style", "margin:24px 0")
	d.link(l.Link, styleLink, strings.TrimSuffix(l.invitation(), ":"))
	d.close("p")
}

func (d *document) link(to, style, text string) {
	d.WriteString("<a ses:no-track")
	d.WriteString(` href="` + escape(to) + `" rel="noreferrer" style="` + style + `">`)
	d.text(text)
	d.WriteString("</a>")
}

// entries are the requests of a letter about many, each with its link.
func (d *document) entries(l Letter) {
	for _, e := range l.Entries {
		d.open("div", "style", styleLines, "dir", "ltr")
		d.text(strconv.Itoa(e.Number) + ". ")
		d.spans(e.Text)
		if e.Link != "" {
			d.text(" ")
			d.link(e.Link, styleEntry, "Open page")
		}
		d.close("div")
	}
	if rest := l.Elsewhere(); rest != "" {
		d.element("p", styleTold, rest)
	}
	d.element("p", styleSmall, "Run "+l.Run)
	d.element("p", styleSmall, footerOfMany)
}
