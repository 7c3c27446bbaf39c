package promises

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Promise is one unit of the document with what keeps it.
type Promise struct {
	Unit
	Scenarios []string // scenarios/NAME.txtar
	Tests     []string // Go tests, by name
	Instead   string   // why there is neither: a fact about a source system, or what another rule overrules it with
	Later     string   // the feature it waits for
}

// Kept reports whether the line says anything about the unit.
func (p Promise) Kept() bool {
	return len(p.Scenarios)+len(p.Tests) > 0 || p.Instead != "" || p.Later != ""
}

var bookHeading = regexp.MustCompile(`^## (\S+)$`)

// Read reads docs/promises.txt: sections as `## 6.1`, a unit a line as the document has it, and indented beneath it what keeps it, as
// `scenario: NAME, NAME`, `test: NAME`, `instead: why`, `later: what`. Lines with # and one space are comments.
func Read(text string) ([]Promise, error) {
	var book []Promise
	section := ""
	for n, line := range strings.Split(text, "\n") {
		if m := bookHeading.FindStringSubmatch(line); m != nil {
			section = m[1]
			continue
		}
		indented := strings.HasPrefix(line, "\t")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "# "):
		case !indented:
			book = append(book, Promise{Unit: Unit{section, line}})
		case len(book) == 0:
			return nil, fmt.Errorf("line %d: got a proof, want a sentence before it", n+1)
		default:
			if err := book[len(book)-1].read(line); err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
		}
	}
	return book, nil
}

func (p *Promise) read(line string) error {
	word, rest, _ := strings.Cut(line, ":")
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return fmt.Errorf("%s: got nothing, want something behind the colon", word)
	}
	switch word {
	case "scenario":
		p.Scenarios = append(p.Scenarios, names(rest)...)
	case "test":
		p.Tests = append(p.Tests, names(rest)...)
	case "instead":
		p.Instead = rest
	case "later":
		p.Later = rest
	default:
		return fmt.Errorf("got %q, want scenario, test, instead or later", word)
	}
	return nil
}

func names(list string) []string {
	all := strings.Split(list, ",")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// Write is the book with a line for every unit of the document, in its order: those it has keep what it says of them, new ones say
// nothing yet, and what the document no longer has is left out.
func Write(units []Unit, book []Promise) string {
	var out strings.Builder
	out.WriteString(head)
	section := ""
	for _, u := range units {
		if u.Section != section {
			section = u.Section
			fmt.Fprintf(&out, "\n## %s\n", section)
		}
		p := Promise{Unit: u}
		if i := slices.IndexFunc(book, func(p Promise) bool { return p.Unit == u }); i >= 0 {
			p = book[i]
		}
		p.write(&out)
	}
	return out.String()
}

func (p Promise) write(out *strings.Builder) {
	out.WriteString(p.Text + "\n")
	for _, l := range []struct{ word, text string }{
		{"scenario", strings.Join(p.Scenarios, ", ")}, {"test", strings.Join(p.Tests, ", ")}, {"instead", p.Instead}, {"later", p.Later},
	} {
		if l.text != "" {
			fmt.Fprintf(out, "\t%s: %s\n", l.word, l.text)
		}
	}
}

const head = `# What the product promises of the five source systems, sentence by sentence as docs/semantics.md has them, and what shows that each is
# kept. go test ./internal/promises holds this file to the document, the scenarios and the tests; with -update it adds new sentences.
`
