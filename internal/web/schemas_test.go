package web_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/stream"
)

var update = flag.Bool("update", false, "write the schemas of docs/openapi.yaml again")

// requestTypes and answers, with events, are types of the API. The types of their fields follow from them.
var (
	requestTypes = []any{web.Start{}, web.Input{}, web.Chat{}, web.Note{}, web.Verdict{}, web.Fork{}, web.CallbackAnswer{}, web.Blob{}, people.Form{}}
	answerTypes  = []any{
		web.Accepted{}, web.Run{}, web.RunHead{}, web.Event{}, web.Replay{}, approval.Approval{}, web.Applied{}, web.Undone{},
		web.Grant{}, people.Person{}, runtime.Repaired{}, runtime.Deleted{}, store.Deletion{}, web.Uploading{}, web.Uploaded{}, web.Problem{},
		stream.Event{}, stream.DeltaData{},
	}
)

// schemaNames are the schemas that are not named as their Go types are.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[web.Run](): "Run", reflect.TypeFor[web.Message](): "Message", reflect.TypeFor[web.Call](): "Call",
	reflect.TypeFor[web.Waiting](): "Waiting", reflect.TypeFor[approval.Decision](): "Decided",
	reflect.TypeFor[approval.Status](): "ApprovalStatus", reflect.TypeFor[approval.Kind](): "ApprovalKind",
	reflect.TypeFor[stream.Event](): "CanonicalEvent", reflect.TypeFor[stream.Type](): "CanonicalType",
	reflect.TypeFor[people.Form](): "PersonForm",
}

func schemaName(t reflect.Type) string { return cmp.Or(schemaNames[t], t.Name()) }

// Go types give the schemas their members, the types and order of these, which of them are required, and the values of
// enums and of x-types. A schema that nothing refers to is dropped. Everything else of docs/openapi.yaml is written by
// hand and kept: paths, descriptions, and property schemas that say more than their Go type, such as RunID of a string.
func TestSchemasHaveWhatTheTypesHave(t *testing.T) {
	text, err := os.ReadFile(openapiFile)
	require.NoError(t, err)
	var doc yaml.MapSlice
	require.NoError(t, yaml.UnmarshalWithOptions(text, &doc, yaml.UseOrderedMap()))
	components := get(doc, "components").(yaml.MapSlice)
	all := schemaSet{get(components, "schemas").(yaml.MapSlice)}
	all.addTypes(t)
	set(components, "schemas", all.MapSlice)
	refs, used := flow(doc), yaml.MapSlice{}
	for _, s := range all.MapSlice {
		if strings.Contains(refs, `"`+componentPrefix+s.Key.(string)+`"`) {
			used = append(used, s)
		}
	}
	set(components, "schemas", used)
	want := strings.TrimPrefix(layout(doc, -2, width), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile(openapiFile, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text), "docs/openapi.yaml differs from the Go types: run make generate, read its diff")
}

const componentPrefix = "#/components/schemas/"

// schemaSet is components.schemas, in the order of the file.
type schemaSet struct{ yaml.MapSlice }

// get returns a member of an object; nil = it has none.
func get(of any, key string) any {
	object, _ := of.(yaml.MapSlice)
	for _, m := range object {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// set returns an object with a member in its place, or behind the others.
func set(object yaml.MapSlice, key string, value any) yaml.MapSlice {
	for i := range object {
		if object[i].Key == key {
			object[i].Value = value
			return object
		}
	}
	return append(object, yaml.MapItem{Key: key, Value: value})
}

// addTypes writes what the Go types have into the set.
func (all *schemaSet) addTypes(t *testing.T) {
	t.Helper()
	reflector := &jsonschema.Reflector{Anonymous: true, Namer: schemaName, Mapper: func(of reflect.Type) *jsonschema.Schema {
		switch of {
		case reflect.TypeFor[time.Time]():
			return &jsonschema.Schema{Ref: componentPrefix + "Time"}
		case reflect.TypeFor[agent.Definition]():
			return &jsonschema.Schema{Type: "object"}
		case reflect.TypeFor[run.USD]():
			return &jsonschema.Schema{Type: "number"}
		}
		if of.Kind() != reflect.String || get(all.MapSlice, schemaName(of)) == nil {
			return nil
		}
		setEnum(all, schemaName(of), constants(t, of))
		return &jsonschema.Schema{Ref: componentPrefix + schemaName(of)}
	}}
	for i, of := range slices.Concat(requestTypes, answerTypes) {
		reflector.AllowAdditionalProperties = i >= len(requestTypes)
		definitions := reflector.Reflect(of).Definitions
		for _, name := range slices.Sorted(maps.Keys(definitions)) {
			if name == "Ticket" {
				definitions[name].Properties.Delete("memo") // nobody is shown it (agent.Call.Asked)
			}
			raw, err := json.Marshal(definitions[name])
			require.NoError(t, err)
			raw = bytes.ReplaceAll(raw, []byte("#/$defs/"), []byte(componentPrefix))
			var want yaml.MapSlice
			require.NoError(t, yaml.UnmarshalWithOptions(raw, &want, yaml.UseOrderedMap()))
			all.MapSlice = set(all.MapSlice, name, all.merge(get(all.MapSlice, name), want))
		}
	}
	setEnum(all, "EventType", run.EventTypes())
	setEnum(all, "CanonicalType", stream.Types())
	problems := yaml.MapSlice{}
	for _, kind := range constants(t, reflect.TypeFor[web.ProblemType]()) {
		status := strconv.Itoa(web.NewProblem(web.ProblemType(kind), "").Status)
		kinds, _ := get(problems, status).([]any)
		problems = set(problems, status, append(kinds, kind))
	}
	slices.SortFunc(problems, func(a, b yaml.MapItem) int { return cmp.Compare(a.Key.(string), b.Key.(string)) })
	set(get(all.MapSlice, "Problem").(yaml.MapSlice), "x-types", problems)
}

// setEnum writes the values of a schema that lists its values.
func setEnum[T ~string](all *schemaSet, name string, values []T) {
	s, _ := get(all.MapSlice, name).(yaml.MapSlice)
	if get(s, "enum") == nil {
		return
	}
	var list []any
	for _, v := range values {
		list = append(list, string(v))
	}
	set(s, "enum", list)
}

// merge returns a schema of the document, nil = none, with what the schema of its Go type has.
func (all schemaSet) merge(has, want any) any {
	out, _ := has.(yaml.MapSlice)
	members, _ := get(want, "properties").(yaml.MapSlice)
	switch {
	case members != nil:
		properties := yaml.MapSlice{}
		for _, m := range members {
			old := get(get(has, "properties"), m.Key.(string))
			properties = append(properties, yaml.MapItem{Key: m.Key, Value: all.merge(old, m.Value)})
		}
		out = slices.DeleteFunc(out, func(m yaml.MapItem) bool { return m.Key == "required" && get(want, "required") == nil })
		for _, key := range []string{"type", "additionalProperties", "required"} {
			if v := get(want, key); v != nil {
				out = set(out, key, v)
			}
		}
		return set(out, "properties", properties)
	case has == nil && want == true:
		return yaml.MapSlice{}
	case has == nil, want != true && all.jsonType(has) != all.jsonType(want):
		return want
	case all.jsonType(want) == "object" && get(want, "$ref") != get(has, "$ref"):
		return want
	case get(has, "items") != nil && get(want, "items") != nil:
		return set(out, "items", all.merge(get(has, "items"), get(want, "items")))
	}
	return has
}

// jsonType is the JSON type of the values that a schema takes; "" = several.
func (all schemaSet) jsonType(s any) string {
	if ref, ok := get(s, "$ref").(string); ok {
		if target := get(all.MapSlice, path.Base(ref)); target != nil {
			return all.jsonType(target)
		}
		return "object" // not in the set yet
	}
	if name, ok := get(s, "type").(string); ok {
		return name
	}
	if values, ok := get(s, "enum").([]any); ok {
		return fmt.Sprintf("%T", values[0])
	}
	if options, ok := get(s, "anyOf").([]any); ok {
		return all.jsonType(options[0])
	}
	return ""
}

// constants are the string constants of a type, as its package declares them, or agent and policy for a run's types.
func constants(t *testing.T, of reflect.Type) []string {
	t.Helper()
	home := strings.TrimPrefix(of.PkgPath(), "github.com/countersign/countersign/internal/")
	var values []string
	for i, dir := range []string{home, "agent", "policy"} {
		name := of.Name()
		switch {
		case dir == home && i > 0:
			continue
		case dir != home:
			name = path.Base(home) + `\.` + name
		}
		files, err := filepath.Glob("../" + dir + "/*.go")
		require.NoError(t, err)
		for _, f := range files {
			text, err := os.ReadFile(f)
			require.NoError(t, err)
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			declared := regexp.MustCompile(`(?m)^(?:const)?\s+\w+\s+(?:` + name + `\s+=\s+|=\s+new` + name + `\()"([^"]*)"`)
			for _, found := range declared.FindAllSubmatch(text, -1) {
				values = append(values, string(found[1]))
			}
		}
	}
	require.NotEmpty(t, values, of)
	return values
}

// width is that of the lines of the document.
const width = 120

// layout is YAML of what stands behind a key: in the rest of its line if it fits, else in lines of their own.
func layout(v any, indent, column int) string {
	line := flow(v)
	if column+1+len(line) <= width {
		return " " + line
	}
	var out strings.Builder
	start := "\n" + strings.Repeat(" ", indent+2)
	parts := strings.Fields(line)
	switch v := v.(type) {
	case yaml.MapSlice:
		for _, m := range v {
			key := start + flow(m.Key) + ":"
			out.WriteString(key + layout(m.Value, indent+2, len(key)-1))
		}
		return out.String()
	case []any:
		parts = nil
		for _, e := range v {
			parts = append(parts, flow(e)+",")
		}
		if slices.ContainsFunc(parts, func(p string) bool { return indent+3+len(p) > width }) {
			for _, e := range v {
				out.WriteString(start + "- " + strings.TrimLeft(layout(e, indent+2, indent+3), " \n"))
			}
			return out.String()
		}
		parts[0] = "[" + parts[0]
		parts[len(parts)-1] = strings.TrimSuffix(parts[len(parts)-1], ",") + "]"
	}
	for _, p := range parts {
		if column+1+len(p) > width {
			out.WriteString(start + p)
			column = len(start) - 1 + len(p)
		} else {
			out.WriteString(" " + p)
			column += 1 + len(p)
		}
	}
	return out.String()
}

// plain are the strings that need no quotes in YAML.
var plain = regexp.MustCompile(`^[A-Za-z($/][^:#,?\[\]{}"]*$`)

// flow is YAML in one line.
func flow(v any) string {
	var parts []string
	switch v := v.(type) {
	case yaml.MapSlice:
		for _, m := range v {
			parts = append(parts, flow(m.Key)+": "+flow(m.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, e := range v {
			parts = append(parts, flow(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		switch {
		case plain.MatchString(v) && v != "null" && v != "true" && v != "false":
			return v
		case strings.ContainsAny(v, `\"`):
			return "'" + strings.ReplaceAll(v, "'", "''") + "'"
		}
		return `"` + v + `"`
	case nil:
		return "null"
	}
	return fmt.Sprint(v)
}
