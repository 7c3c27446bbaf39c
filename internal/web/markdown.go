package web

import (
	"net/url"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/countersign/countersign/internal/people"
)

// markdown parses what models write: CommonMark and tables.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough)).Parser()

// maxNesting is how deep parts of a text may lie in each other. What lies deeper is shown as it was written.
const maxNesting = 16

// markdownNode is a part of a text for the template "markdown". Its text is escaped like any other foreign text: HTML
// in it is shown as text, and images are links.
type markdownNode struct {
	Kind     string // the HTML element; text, br or link
	Text     people.Text
	URL      string // of a link
	Host     string // of a link, as its text does not say where it leads
	Start    int    // of an ordered list
	Children []markdownNode
}

// newMarkdown returns the parts of a text.
func (s *pageBuilder) newMarkdown(source string) []markdownNode {
	src := []byte(source)
	return s.markdownChildren(markdown.Parse(text.NewReader(src)), src, 0)
}

func (s *pageBuilder) markdownChildren(n ast.Node, src []byte, depth int) (all []markdownNode) {
	for child := n.FirstChild(); child != nil; child = child.NextSibling() {
		all = append(all, s.newMarkdownNodes(child, src, depth)...)
	}
	return all
}

// elements are the HTML elements of nodes that have nothing but children.
var elements = map[ast.NodeKind]string{
	ast.KindParagraph: "p", ast.KindTextBlock: "block", ast.KindHeading: "heading", ast.KindBlockquote: "blockquote",
	ast.KindListItem: "li", ast.KindThematicBreak: "hr", extast.KindTable: "table", extast.KindTableHeader: "thead",
	extast.KindTableRow: "tr", extast.KindTableCell: "td", extast.KindStrikethrough: "del",
}

func (s *pageBuilder) newMarkdownNodes(n ast.Node, src []byte, depth int) []markdownNode {
	words := func(raw string) []markdownNode {
		return []markdownNode{{Kind: "text", Text: s.fitText(people.ConversationText(raw))}}
	}
	lines := func() string { return string(n.Lines().Value(src)) }
	if depth > maxNesting {
		return words(string(n.Text(src))) //nolint:staticcheck // of whatever node it is
	}
	switch n := n.(type) {
	case *ast.Text:
		value := util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(n.Value(src))))
		all := words(string(value))
		if n.SoftLineBreak() || n.HardLineBreak() {
			all = append(all, markdownNode{Kind: "br"})
		}
		return all
	case *ast.String:
		return words(string(n.Value))
	case *ast.RawHTML:
		return words(string(n.Segments.Value(src)))
	case *ast.HTMLBlock:
		block := lines()
		if n.HasClosure() {
			block += string(n.ClosureLine.Value(src))
		}
		return []markdownNode{{Kind: "p", Children: words(strings.TrimSuffix(block, "\n"))}}
	case *ast.FencedCodeBlock, *ast.CodeBlock:
		return []markdownNode{{Kind: "pre", Text: s.fitText(people.ConversationText(strings.TrimSuffix(lines(), "\n")))}}
	case *ast.CodeSpan:
		return []markdownNode{{Kind: "code", Children: words(string(n.Text(src)))}} //nolint:staticcheck // as it is written
	case *ast.Emphasis:
		kind := []string{"em", "strong"}[min(n.Level-1, 1)]
		return []markdownNode{{Kind: kind, Children: s.markdownChildren(n, src, depth+1)}}
	case *ast.List:
		kind := "ul"
		if n.IsOrdered() {
			kind = "ol"
		}
		return []markdownNode{{Kind: kind, Start: n.Start, Children: s.markdownChildren(n, src, depth+1)}}
	case *ast.AutoLink:
		return s.newLink(string(n.URL(src)), words(string(n.Label(src))))
	case *ast.Link:
		return s.newLink(string(n.Destination), s.markdownChildren(n, src, depth+1))
	case *ast.Image:
		return s.newLink(string(n.Destination), s.markdownChildren(n, src, depth+1))
	}
	if kind, known := elements[n.Kind()]; known {
		return []markdownNode{{Kind: kind, Children: s.markdownChildren(n, src, depth+1)}}
	}
	return s.markdownChildren(n, src, depth+1)
}

// newLink returns a link to a web page, with the host that it leads to. Any other link is its text and its address.
func (s *pageBuilder) newLink(to string, label []markdownNode) []markdownNode {
	u, err := url.Parse(to)
	if err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Host == "" {
		return append(label, markdownNode{Kind: "text", Text: s.newText(" (" + to + ")")})
	}
	return []markdownNode{{Kind: "link", URL: u.String(), Host: s.newText(u.Host).String(), Children: label}}
}
