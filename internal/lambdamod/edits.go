package main

// The modules that functions link otherwise than others do.
const (
	library = "github.com/santhosh-tekuri/jsonschema/v6"
	words   = "golang.org/x/text"
)

// edits of the library. Its init compiles the metaschemas of five drafts, which is most of the init of a function; a function needs those of
// one draft, if any. A draft gets its own when they are first asked for, by the same calls. allVocabs keeps the names, which others read.
var edits = map[string][]edit{"draft.go": {
	{"\t\"strings\"\n)", "\t\"strings\"\n\t\"sync\"\n)"},
	{
		"\tdefaultVocabs []string           // names of default vocabs\n",
		`	defaultVocabs []string           // names of default vocabs
	once          sync.Once          // compiles sch and vocabs
	vocabs        map[string]*Schema // those of allVocabs
`,
	},
	{
		`func init() {
	c := NewCompiler()
	c.AssertFormat()
	for _, d := range []*Draft{Draft4, Draft6, Draft7, Draft2019, Draft2020} {
		d.sch = c.MustCompile(d.url)
		for name := range d.allVocabs {
			d.allVocabs[name] = c.MustCompile(strings.TrimSuffix(d.url, "schema") + "meta/" + name)
		}
	}
}
`,
		`// compiled is d with its metaschemas.
func (d *Draft) compiled() *Draft {
	d.once.Do(func() {
		c := NewCompiler()
		c.AssertFormat()
		d.sch = c.MustCompile(d.url)
		d.vocabs = map[string]*Schema{}
		for name := range d.allVocabs {
			d.vocabs[name] = c.MustCompile(strings.TrimSuffix(d.url, "schema") + "meta/" + name)
		}
	})
	return d
}
`,
	},
	{"\t\treturn d.draft.sch\n", "\t\treturn d.draft.compiled().sch\n"},
	{"\t\tsch := d.draft.allVocabs[vocab]\n", "\t\tsch := d.draft.compiled().vocabs[vocab]\n"},
	{"\t\tsch := d.draft.allVocabs[\"core\"]\n", "\t\tsch := d.draft.compiled().vocabs[\"core\"]\n"},
	{"\t\t\tsch = d.draft.sch\n", "\t\t\tsch = d.draft.compiled().sch\n"},
}}

// text is what the library uses of golang.org/x/text. A function that came to use more of it would not build.
func text() map[string][]byte {
	return map[string][]byte{
		"go.mod":               []byte("module " + words + "\n\ngo 1.24\n"),
		"language/language.go": []byte(languagePackage),
		"message/message.go":   []byte(messagePackage),
	}
}

const languagePackage = `// Package language knows one.
package language

// Tag is a language.
type Tag struct{}

// English is the language.
var English Tag
`

const messagePackage = `// Package message formats as package fmt does.
package message

import (
	"fmt"

	"golang.org/x/text/language"
)

// Printer formats.
type Printer struct{}

// NewPrinter makes a Printer.
func NewPrinter(language.Tag) *Printer { return &Printer{} }

// Sprintf is fmt.Sprintf.
func (*Printer) Sprintf(format string, a ...any) string { return fmt.Sprintf(format, a...) }
`
