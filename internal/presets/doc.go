// Package presets writes docs/presets.md from the presets of the core, and its test holds the page to them.
package presets

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent"
)

// key is one policy as agent.yaml spells it and as a definition stores it.
type key struct {
	yaml   string
	stored string // path in the stored definition; "" = yaml
	about  string
	unset  string // what a definition means that does not say
	time   bool   // stored in nanoseconds
}

// order is the order of the columns: the product's own first, then the source systems by their seeds.
var order = []agent.Preset{agent.PresetCountersign, agent.PresetArvo, agent.PresetRunner, agent.PresetTirea, agent.PresetCowork, agent.PresetForge}

// Page is docs/presets.md.
func Page() (string, error) {
	columns := make([]map[string]string, len(order))
	for i, p := range order {
		d, err := agent.PresetDefaults(p)
		if err != nil {
			return "", err
		}
		if columns[i], err = flat(d); err != nil {
			return "", err
		}
	}
	if err := complete(columns); err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(head)
	for _, k := range keys {
		fmt.Fprintf(&page, "| `%s` |", k.yaml)
		for _, c := range columns {
			page.WriteString(" " + k.shown(c) + " |")
		}
		page.WriteString(" " + k.about + " |\n")
	}
	page.WriteString(wordingsHead)
	for _, w := range agent.Wordings() {
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", w.Key, w.About, quoted(w))
	}
	page.WriteString(sectionsHead)
	for _, s := range agent.Sections() {
		fmt.Fprintf(&page, "| `%s` | %s | %d | %s | %s | %s |\n", s.Name, place(s), s.Code(), when(s), s.About, strings.ReplaceAll(fmt.Sprintf("%q", s.Text), "|", `\|`))
	}
	return page.String(), nil
}

func place(s agent.Section) string {
	if s.Turn {
		return "turn"
	}
	return "system"
}

func when(s agent.Section) string {
	var marks []string
	for _, m := range []struct {
		of   bool
		name string
	}{{s.Loop, "loop"}, {s.XML, "xml"}, {s.Tools, "tools"}} {
		if m.of {
			marks = append(marks, m.name)
		}
	}
	return strings.Join(marks, ", ")
}

// quoted is what the wording says where nothing else is configured.
func quoted(w agent.Wording) string {
	said := fmt.Sprintf("%q", w.Text)
	for _, p := range order {
		if text, ok := w.Presets[p]; ok {
			said += fmt.Sprintf("; %s: %q", p, text)
		}
	}
	return strings.ReplaceAll(said, "|", `\|`)
}

// shown is the key's value in one preset.
func (k key) shown(column map[string]string) string {
	value, ok := column[k.path()]
	if !ok {
		return k.unset
	}
	if k.time {
		var d time.Duration
		if json.Unmarshal([]byte(value), &d) == nil {
			return d.String()
		}
	}
	return strings.ReplaceAll(strings.Trim(value, `"`), "|", `\|`)
}

func (k key) path() string {
	if k.stored != "" {
		return k.stored
	}
	return k.yaml
}

// complete says which value of a preset the page would leave out, and which key it has that no preset sets and that has no value for that.
func complete(columns []map[string]string) error {
	named := map[string]bool{}
	for _, k := range keys {
		named[k.path()] = true
		if k.unset == "" && slices.ContainsFunc(columns, func(c map[string]string) bool { _, ok := c[k.path()]; return !ok }) {
			return fmt.Errorf("preset page: %s: say what it means where a preset does not set it", k.yaml)
		}
	}
	for i, c := range columns {
		for path := range c {
			if !named[path] && !slices.Contains(own, path) {
				return fmt.Errorf("preset page: %s sets %s, which the page has no line for", order[i], path)
			}
		}
	}
	return nil
}

// own are the values that are the agent's and not the preset's.
var own = []string{"name", "preset", "system", "model.provider"}

// flat is a definition's JSON by paths; a list is one value.
func flat(d agent.Definition) (map[string]string, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("preset page: %w", err)
	}
	out := map[string]string{}
	return out, flatten("", text, out)
}

func flatten(at string, value json.RawMessage, into map[string]string) error {
	if value[0] != '{' {
		into[at] = string(value)
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return fmt.Errorf("preset page: %s: %w", at, err)
	}
	for name, member := range members {
		path := name
		if at != "" {
			path = at + "." + name
		}
		if err := flatten(path, member, into); err != nil {
			return err
		}
	}
	return nil
}
