package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
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
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
	"github.com/countersign/countersign/internal/web/stream"
)

// requests and answers, with events, are types of the API. The types of their fields follow from them.
var (
	requests = []any{api.Start{}, api.Input{}, api.Chat{}, api.Note{}, api.Verdict{}, api.Fork{}, api.CallbackAnswer{}, api.Blob{}, api.PersonForm{}}
	answers  = []any{
		api.Accepted{}, api.Run{}, api.RunHead{}, api.Event{}, api.Replay{}, approval.Approval{}, api.Applied{}, api.Undone{},
		api.Grant{}, api.Person{}, runtime.Repaired{}, runtime.Deleted{}, store.Deletion{}, api.Uploading{}, api.Uploaded{}, api.Page[any]{}, api.Problem{},
		stream.Event{}, stream.DeltaData{},
	}
)

// schemaNames are the schemas that are not named as their Go types are.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[api.Run](): "Run", reflect.TypeFor[api.Message](): "Message", reflect.TypeFor[api.Call](): "Call",
	reflect.TypeFor[api.Waiting]():   "Waiting",
	reflect.TypeFor[api.Page[any]](): "Page", reflect.TypeFor[approval.Decision](): "Decided",
	reflect.TypeFor[approval.Status](): "ApprovalStatus", reflect.TypeFor[approval.Kind](): "ApprovalKind",
	reflect.TypeFor[stream.Event](): "CanonicalEvent", reflect.TypeFor[stream.Type](): "CanonicalType",
}

// Schemas have the members of their Go types, with the JSON types of these, say which of them are required, and list
// the values of enums and of x-types. Something refers to each. The rest of docs/openapi.yaml is its own: paths,
// descriptions, and property schemas that say more than their Go type, such as RunID of a string.
func TestSchemasHaveWhatTheTypesHave(t *testing.T) {
	text := must(os.ReadFile(openapiFile))
	var doc struct {
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, yaml.Unmarshal(text, &doc))
	all := schemaSet(doc.Components.Schemas)
	for name := range all {
		require.Contains(t, string(text), componentPrefix+name+`"`, "nothing refers to schema %s", name)
	}
	name := func(t reflect.Type) string { return cmp.Or(schemaNames[t], t.Name()) }
	reflector := &jsonschema.Reflector{Anonymous: true, Namer: name, Mapper: func(of reflect.Type) *jsonschema.Schema {
		switch of {
		case reflect.TypeFor[time.Time]():
			return &jsonschema.Schema{Ref: componentPrefix + "Time"}
		case reflect.TypeFor[agent.Definition]():
			return &jsonschema.Schema{Type: "object"}
		case reflect.TypeFor[run.USD]():
			return &jsonschema.Schema{Type: "number"}
		}
		if of.Kind() != reflect.String || all[name(of)] == nil {
			return nil
		}
		listed := get(all[name(of)], "enum")
		if listed != nil && of != reflect.TypeFor[stream.Type]() { // some of these are live alone: see below
			require.ElementsMatch(t, constants(t, of), listed, name(of))
		}
		return &jsonschema.Schema{Ref: componentPrefix + name(of)}
	}}
	for i, of := range slices.Concat(requests, answers) {
		reflector.AllowAdditionalProperties = i >= len(requests)
		for name, definition := range reflector.Reflect(of).Definitions {
			if name == "Ticket" {
				definition.Properties.Delete("memo") // nobody is shown it (agent.Call.Asked)
			}
			raw := must(json.Marshal(definition))
			var want any
			require.NoError(t, json.Unmarshal(bytes.ReplaceAll(raw, []byte("#/$defs/"), []byte(componentPrefix)), &want))
			all.check(t, name, all[name], want)
		}
	}
	require.ElementsMatch(t, run.EventTypes(), get(all["EventType"], "enum"))
	var types []any
	for _, kind := range stream.Types() {
		types = append(types, string(kind))
	}
	require.ElementsMatch(t, types, get(all["CanonicalType"], "enum"))
	problems := map[string][]string{}
	for _, kind := range constants(t, reflect.TypeFor[api.ProblemType]()) {
		status := strconv.Itoa(api.NewProblem(api.ProblemType(kind), "").Status)
		problems[status] = append(problems[status], kind)
	}
	want := must(json.Marshal(problems))
	got := must(json.Marshal(get(all["Problem"], "x-types")))
	require.JSONEq(t, string(want), string(got))
}

const componentPrefix = "#/components/schemas/"

// schemaSet is components.schemas.
type schemaSet map[string]any

// get returns a member of an object; nil = it has none.
func get(of any, key string) any {
	object, _ := of.(map[string]any)
	return object[key]
}

// check holds a schema of the document to that of its Go type.
func (all schemaSet) check(t *testing.T, where string, has, want any) {
	t.Helper()
	if want == true { // any JSON
		return
	}
	require.Equal(t, all.jsonType(want), all.jsonType(has), where)
	members, _ := get(want, "properties").(map[string]any)
	for key, member := range members {
		require.NotNil(t, get(get(has, "properties"), key), "%s has no %s", where, key)
		all.check(t, where+"."+key, get(get(has, "properties"), key), member)
	}
	switch {
	case members != nil:
		require.Len(t, get(has, "properties"), len(members), where)
		if get(want, "additionalProperties") == false {
			require.Equal(t, false, get(has, "additionalProperties"), where)
		}
		require.ElementsMatch(t, get(want, "required"), get(has, "required"), where)
	case get(has, "items") != nil && get(want, "items") != nil:
		all.check(t, where+"[]", get(has, "items"), get(want, "items"))
	case all.jsonType(want) == "object":
		require.Equal(t, get(want, "$ref"), get(has, "$ref"), where)
	}
}

// jsonType is the JSON type of the values that a schema takes; "" = several.
func (all schemaSet) jsonType(s any) string {
	if ref, ok := get(s, "$ref").(string); ok {
		return all.jsonType(all[path.Base(ref)])
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
		files := must(filepath.Glob("../../" + dir + "/*.go"))
		for _, f := range files {
			text := must(os.ReadFile(f))
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
