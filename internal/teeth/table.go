package teeth

import (
	"fmt"
	"strings"
)

// Table is the list of mutations for people, in Markdown: what each takes away, what catches it, and how that says so.
func Table(all []Mutation) string {
	var b strings.Builder
	b.WriteString("| mutation | of | what it does | caught by | which says |\n|---|---|---|---|---|\n")
	for _, m := range all {
		for i, c := range m.Cases {
			name, of, takes := "`"+m.Name+"`", m.Of, m.Takes
			if i > 0 {
				name, of, takes = "", "", ""
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | `%s` |\n", name, of, takes, c.cell(), cell(c.Wants))
		}
	}
	return b.String()
}

// cell is the case in a table.
func (c Case) cell() string {
	switch {
	case c.Test != "":
		return fmt.Sprintf("test `%s`; a scenario would need %s", cell(c.Test), c.Why)
	case c.With == "":
		return fmt.Sprintf("`%s` as it is", c.Scenario)
	default:
		return fmt.Sprintf("`%s` with `%s`", c.Scenario, c.With)
	}
}

// cell is a text within a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
