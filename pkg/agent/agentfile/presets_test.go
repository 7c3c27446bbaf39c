package agentfile

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

// said are cells of docs/presets.md that are words and no value of agent.yaml, with the value; "" = the file cannot say it.
var said = map[string]string{
	"the provider's": "", "all that may pass": "", "a text, not with `output.format: json`": "", "`model.moveOn` all": "",
	"`model.retry.window` none": "0s", "`model.timeout` none": "0s", "`model.staticText` none": `""`, "retry and wait": "",
}

// presetCell are the presets that a cell's part is about, and the value.
var presetCell = regexp.MustCompile(`^((?:(?:all|arvo|runner|tirea|cowork|forge)(?:, )?)+) (.+)$`)

// changes lists what differs between two values, each as A -> B.
func changes(a, b reflect.Value) (all []string) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			all = append(all, changes(a.Field(i), b.Field(i))...)
		}
	case reflect.Pointer:
		if !a.IsNil() && !b.IsNil() {
			return changes(a.Elem(), b.Elem())
		}
		if a.IsNil() != b.IsNil() {
			all = append(all, fmt.Sprintf("%v -> %v", a, b))
		}
	case reflect.String:
		if a.String() != b.String() {
			all = append(all, fmt.Sprintf("%q -> %s", a, b))
		}
	default:
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			all = append(all, x+" -> "+y)
		}
	}
	return all
}

// firstWord is the first of the words that a key takes, which is what "" means.
func firstWord(t *testing.T, key string) string {
	t.Helper()
	var at struct {
		Enum       []string
		Properties map[string]json.RawMessage
	}
	of := Schema()
	for _, name := range strings.Split(key, ".") {
		require.NoError(t, json.Unmarshal(of, &at))
		of = at.Properties[name]
	}
	require.NoError(t, json.Unmarshal(of, &at))
	require.NotEmpty(t, at.Enum, key)
	return at.Enum[0]
}

// Every value of the tables of docs/presets.md is the preset's: to write it into a file of that preset changes nothing.
func TestThePresetsAreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/presets.md")
	require.NoError(t, err)
	section, _, found := strings.Cut(string(text), "\n## 2.")
	require.True(t, found)
	others := []string{"arvo", "runner", "tirea", "cowork", "forge"}
	header, checked := []string{}, 0
	for _, line := range strings.Split(section, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "key" {
			header = cells
			continue
		}
		require.Len(t, cells, len(header), line)
		keys := strings.Split(strings.ReplaceAll(cells[0], "`", ""), ", ")
		for i := range keys[1:] { // of the same mapping as the first
			keys[i+1] = keys[0][:strings.LastIndex(keys[0], ".")+1] + keys[i+1]
		}
		values := map[string]string{}
		for i, name := range header[1:] {
			cell := cells[i+1]
			switch name {
			case "meaning":
			case "value":
				for _, p := range append(others, "countersign") {
					values[p] = cell
				}
			case "others":
				for _, p := range others {
					values[p] = values["countersign"]
				}
				for _, part := range strings.Split(cell, "; ") {
					m := presetCell.FindStringSubmatch(part)
					require.NotNil(t, m, "%s: %s", cells[0], part)
					names := strings.Split(m[1], ", ")
					if m[1] == "all" {
						names = others
					}
					for _, p := range names {
						values[p] = m[2]
					}
				}
			default:
				values[name] = cell
			}
		}
		for preset, cell := range values {
			parts := []string{cell}
			if len(keys) > 1 {
				parts = strings.Split(strings.ReplaceAll(cell, " and ", ", "), ", ")
			}
			if v, words := said[cell]; words && v == "" {
				continue
			}
			require.Len(t, parts, len(keys), "%s: %s", cells[0], cell)
			for i, key := range keys {
				if strings.Contains(key, "[]") {
					continue // it has no value without a rule
				}
				value := strings.ReplaceAll(parts[i], "`", "")
				if v, words := said["`"+key+"` "+value]; words {
					if value = v; v == "" {
						continue
					}
				}
				of := func(more string) string { return fmt.Sprintf("{preset: %s%s}", preset, more) }
				read := func(text string) agent.Definition {
					r := newReader("agent.yaml", Options{})
					root, ok := r.tree([]byte(text))
					require.True(t, ok, "%s: %v", text, r.problems)
					d := r.definition(root)
					require.Empty(t, r.problems, text)
					return d
				}
				nestedKey := nested(key, value)
				for _, changed := range changes(reflect.ValueOf(read(of(""))), reflect.ValueOf(read(of(", "+nestedKey[1:len(nestedKey)-1])))) {
					require.Equal(t, `"" -> `+firstWord(t, key), changed, "%s of %s: documented %s", key, preset, value)
				}
				checked++
			}
		}
	}
	require.Greater(t, checked, 200)
}
