package released

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/audit"
	"github.com/countersign/countersign/pkg/agent/link"
	"github.com/countersign/countersign/pkg/agent/person"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// stored are the forms that are kept beside journals, and what travels through the state machine.
var stored = map[string]reflect.Type{
	"approval": reflect.TypeFor[approval.Approval](), "grant": reflect.TypeFor[approval.Standing](), "server": reflect.TypeFor[approval.Server](),
	"definition": reflect.TypeFor[agent.Definition](), "duty": reflect.TypeFor[person.Duty](), "link": reflect.TypeFor[link.Link](),
	"audit-line": reflect.TypeFor[audit.Line](), "audit-record": reflect.TypeFor[audit.Record](), "route": reflect.TypeFor[runtime.Route](),
	"preferences": reflect.TypeFor[person.Preferences](), "advice": reflect.TypeFor[agent.ToolApproval](),
}

var shapes = filepath.Join("..", "..", "pkg", "agent", "testdata")

// TestStoredShapesOnlyGrow: a key of a fact or of another stored form that was released keeps its name and its kind of value for ever, and what it means. Whoever needs another meaning
// makes another form of the fact (name/2), or another key. The keys that are new are listed in a file of their own: go test ./internal/released -update.
func TestStoredShapesOnlyGrow(t *testing.T) {
	have := map[string]bool{}
	for _, name := range agent.EventTypes() {
		e, err := agent.UnmarshalEvent(json.RawMessage(`{"` + name + `":{}}`))
		require.NoError(t, err)
		shape(have, "event "+name, reflect.TypeOf(e), nil)
	}
	for name, of := range stored {
		shape(have, name, of, nil)
	}
	files, err := filepath.Glob(filepath.Join(shapes, "stored-keys-*.txt"))
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			require.True(t, have[line], "%s: %s was released, and is not there any more", filepath.Base(file), line)
			listed[line] = true
		}
	}
	fresh := slices.Sorted(maps.Keys(have))
	fresh = slices.DeleteFunc(fresh, func(line string) bool { return listed[line] })
	if *update && len(fresh) > 0 {
		name := filepath.Join(shapes, fmt.Sprintf("stored-keys-%d.txt", len(files)+1))
		require.NoError(t, os.WriteFile(name, []byte(strings.Join(fresh, "\n")+"\n"), 0o644))
		return
	}
	require.Empty(t, fresh, "new keys: list them by go test ./internal/released -update")
}

// shape adds the keys of a type with the kinds of their values.
func shape(into map[string]bool, at string, of reflect.Type, above []reflect.Type) {
	if slices.Contains(above, of) {
		return
	}
	above = append(above, of)
	switch {
	case of == reflect.TypeFor[time.Time](), of == reflect.TypeFor[json.RawMessage](), of == reflect.TypeFor[agent.UserBlock](), of == reflect.TypeFor[agent.USD]():
		into[at+" "+of.String()] = true
	case of.Kind() == reflect.Pointer:
		shape(into, at, of.Elem(), above)
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Uint8:
		into[at+" bytes"] = true
	case of.Kind() == reflect.Slice, of.Kind() == reflect.Array:
		shape(into, at+"[]", of.Elem(), above)
	case of.Kind() == reflect.Map:
		shape(into, at+"{}", of.Elem(), above)
	case of.Kind() == reflect.Struct:
		eachField(of, func(name string, f reflect.StructField) { shape(into, at+"."+name, f.Type, above) })
	default:
		into[at+" "+of.Kind().String()] = true
	}
}

func eachField(of reflect.Type, visit func(name string, f reflect.StructField)) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		visit(name, f)
	}
}

// TestStoredFormsStillRead: of each stored form beside journals, one with every key as it was released is read to what it was, and nothing in it is unknown.
func TestStoredFormsStillRead(t *testing.T) {
	for name, of := range stored {
		file := filepath.Join(shapes, "stored-form-"+name+".json")
		if _, err := os.Stat(file); *update && os.IsNotExist(err) {
			v := reflect.New(of)
			fill(v.Elem(), 0)
			raw, err := agent.MarshalVerbatim(v.Interface())
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, append(raw, '\n'), 0o644))
		}
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		v := reflect.New(of).Interface()
		require.NoError(t, agent.ReadStored(name, data, v))
		again, err := agent.MarshalVerbatim(v)
		require.NoError(t, err)
		var want, got any
		require.NoError(t, json.Unmarshal(data, &want))
		require.NoError(t, json.Unmarshal(again, &got))
		requireWithin(t, name, want, got)
	}
}

// requireWithin wants all of want to be in got.
func requireWithin(t *testing.T, at string, want, got any) {
	t.Helper()
	w, ok := want.(map[string]any)
	if !ok {
		require.Equal(t, want, got, at)
		return
	}
	g, ok := got.(map[string]any)
	require.True(t, ok, at)
	for key, v := range w {
		require.Contains(t, g, key, at)
		requireWithin(t, at+"."+key, v, g[key])
	}
}

// maxDeep ends what holds itself.
const maxDeep = 8

// fill gives every field a value that is not its zero.
func fill(v reflect.Value, depth int) {
	switch {
	case depth > maxDeep:
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
	case v.Type() == reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(`{"a":1.50}`))
	case v.Type() == reflect.TypeFor[agent.UserBlock]():
		v.Set(reflect.ValueOf(agent.UserBlock{Block: agent.Text{Text: "x"}}))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte("x"))
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case v.Kind() == reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), value)
	case v.Kind() == reflect.Struct:
		eachField(v.Type(), func(_ string, f reflect.StructField) { fill(v.FieldByIndex(f.Index), depth+1) })
	default:
		fillPlain(v)
	}
}

func fillPlain(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	}
}

// TestReleasedStateMachinesStillRun: an execution runs the definition that it began with to its end, whatever is deployed meanwhile. So each released one has a way for everything that the functions
// may answer, and gives them all that they read.
func TestReleasedStateMachinesStillRun(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "statemachine", "*.json"))
	require.NoError(t, err)
	old, err := filepath.Glob(filepath.Join("..", "..", "statemachine", "testdata", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, old)
	for _, file := range append(files, old...) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var m struct {
			States map[string]struct {
				Parameters struct{ Payload map[string]any }
				Choices    []struct{ StringEquals, Next string }
			}
		}
		require.NoError(t, json.Unmarshal(data, &m))
		ways := map[string]bool{}
		for _, c := range m.States["Route"].Choices {
			ways[c.StringEquals] = true
		}
		for _, next := range []string{runtime.NextTools, runtime.NextStep, runtime.NextWait, runtime.NextContinue, runtime.NextDone} {
			require.True(t, ways[next], "%s: no way for next=%s; a new one is for executions that begin with a new definition, so what runs must not be sent there", file, next)
		}
		for state, keys := range map[string][]string{
			"Step": {"execution.$", "name.$", "state.$"}, "Tools": {"execution.$", "name.$", "state.$"}, "RecordFailure": {"execution.$", "name.$", "state.$"},
			"Approve": {"execution.$", "name.$", "state.$", "token.$", "retries.$", "redrives.$"},
		} {
			for _, key := range keys {
				require.Contains(t, m.States[state].Parameters.Payload, key, "%s: %s", file, state)
			}
		}
	}
}
