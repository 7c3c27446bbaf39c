package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
)

// document is docs/openapi.yaml, and which of its answers have been seen.
type document struct {
	t        *testing.T
	root     any
	compiler *jsonschema.Compiler
	seen     map[string]bool // METHOD PATH STATUS MEDIATYPE
}

func readDocument(t *testing.T) *document {
	t.Helper()
	text, err := os.ReadFile("../../../docs/openapi.yaml")
	require.NoError(t, err)
	var tree any
	require.NoError(t, yaml.UnmarshalWithOptions(text, &tree, yaml.Strict()))
	require.YAMLEq(t, string(text), string(text), "another reader of YAML takes it, too")
	data, err := json.Marshal(tree)
	require.NoError(t, err)
	d := &document{t: t, compiler: jsonschema.NewCompiler(), seen: map[string]bool{}}
	d.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	d.compiler.AssertFormat()
	require.NoError(t, d.compiler.AddResource("openapi.json", d.root))
	return d
}

// pointer is a JSON pointer of keys.
func pointer(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(k))
	}
	return b.String()
}

// at is the value at a pointer, and where it really is: references are followed.
func (d *document) at(ptr string) (value any, real string, ok bool) {
	value = d.root
	for _, escaped := range strings.Split(ptr, "/")[1:] {
		object, is := value.(map[string]any)
		if !is {
			return nil, "", false
		}
		key := strings.NewReplacer("~1", "/", "~0", "~").Replace(escaped)
		if value, ok = object[key]; !ok {
			return nil, "", false
		}
		real += "/" + escaped
		if object, is := value.(map[string]any); is {
			if ref, is := object["$ref"].(string); is && object["properties"] == nil {
				if value, real, ok = d.at(strings.TrimPrefix(ref, "#")); !ok {
					return nil, "", false
				}
			}
		}
	}
	return value, real, true
}

// object is the members of the object at a pointer; none where there is nothing.
func (d *document) object(ptr string) map[string]any {
	d.t.Helper()
	v, _, ok := d.at(ptr)
	if !ok {
		return nil
	}
	object, ok := v.(map[string]any)
	require.True(d.t, ok, "%s is no object", ptr)
	return object
}

// schema compiles the schema at a pointer.
func (d *document) schema(ptr string) *jsonschema.Schema {
	d.t.Helper()
	_, real, ok := d.at(ptr)
	require.True(d.t, ok, "%s: there is no schema", ptr)
	parts := strings.Split(real, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	s, err := d.compiler.Compile("openapi.json#" + strings.Join(parts, "/"))
	require.NoError(d.t, err)
	return s
}

// valid checks JSON against the schema at a pointer.
func (d *document) valid(ptr string, raw []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return d.schema(ptr).Validate(v)
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// operations lists what is documented, each as METHOD PATH, sorted.
func (d *document) operations() []string {
	var all []string
	for path := range d.object("/paths") {
		for key := range d.object(pointer("paths", path)) {
			if m := strings.ToUpper(key); slices.Contains(methods, m) {
				all = append(all, m+" "+path)
			}
		}
	}
	slices.Sort(all)
	return all
}

// operation is where an operation stands.
func operation(op string) string {
	method, path, _ := strings.Cut(op, " ")
	return pointer("paths", path, strings.ToLower(method))
}

// body is where the schema of an operation's JSON body stands; "" = it takes none.
func (d *document) body(op string) string {
	ptr := operation(op) + pointer("requestBody", "content", "application/json", "schema")
	if _, _, ok := d.at(ptr); !ok {
		return ""
	}
	return ptr
}

// examples are those of an operation's JSON body, by name.
func (d *document) examples(op string) map[string]string {
	d.t.Helper()
	out := map[string]string{}
	for name := range d.object(operation(op) + pointer("requestBody", "content", "application/json", "examples")) {
		v, _, ok := d.at(operation(op) + pointer("requestBody", "content", "application/json", "examples", name, "value"))
		require.True(d.t, ok)
		raw, err := json.Marshal(v)
		require.NoError(d.t, err)
		out[name] = strings.NewReplacer(`"refunds"`, `"payer"`, `"2026-08-01T00:00:00Z"`, hence(time.Hour), `"2026-08-15T00:00:00Z"`, hence(24*time.Hour)).Replace(string(raw))
	}
	return out
}

// hence is a time so much later, as JSON.
func hence(d time.Duration) string {
	return `"` + clock.System().Now().Add(d).UTC().Format(time.RFC3339) + `"`
}

// example is the first of them; "" = there is none.
func (d *document) example(op string) string {
	all := d.examples(op)
	if len(all) == 0 {
		return ""
	}
	return all[slices.Sorted(maps.Keys(all))[0]]
}

// parameters are the names of an operation's parameters in a place: query, header or path.
func (d *document) parameters(op, in string) []string {
	d.t.Helper()
	var names []string
	ptr := operation(op)
	for _, owner := range []string{ptr[:strings.LastIndex(ptr, "/")], ptr} {
		list, _, ok := d.at(owner + "/parameters")
		if !ok {
			continue
		}
		for _, p := range list.([]any) {
			param := p.(map[string]any)
			if ref, is := param["$ref"].(string); is {
				param = d.object(strings.TrimPrefix(ref, "#"))
			}
			if param["in"] == in {
				names = append(names, param["name"].(string))
			}
		}
	}
	slices.Sort(names)
	return names
}

// answers are the documented answers of an operation, as they are counted in seen.
func (d *document) answers(op string) []string {
	var all []string
	for status := range d.object(operation(op) + "/responses") {
		content := d.object(operation(op) + pointer("responses", status, "content"))
		if len(content) == 0 {
			all = append(all, op+" "+status+" ")
		}
		for mediaType := range content {
			all = append(all, op+" "+status+" "+mediaType)
		}
	}
	return all
}

// check holds an answer to what is documented for the operation.
func (d *document) check(t *testing.T, op string, a answer) {
	t.Helper()
	mediaType := d.checkAnswer(t, operation(op)+pointer("responses", fmt.Sprint(a.status)), a)
	d.seen[fmt.Sprintf("%s %d %s", op, a.status, mediaType)] = true
}

// ordinary are the headers of every HTTP answer, and those that Guard adds to each of its port.
var ordinary = []string{
	"Content-Type", "Content-Length", "Date", "X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Referrer-Policy", "X-Frame-Options",
}

// checkAnswer holds an answer to the response at a pointer.
func (d *document) checkAnswer(t *testing.T, ptr string, a answer) (mediaType string) {
	t.Helper()
	_, real, ok := d.at(ptr)
	require.True(t, ok, "status %d is not documented: %s", a.status, a.body)
	documented := d.object(real + "/headers")
	for name := range documented {
		value, there := a.header[http.CanonicalHeaderKey(name)]
		require.True(t, there || d.object(real + pointer("headers", name))["required"] != true, "header %s is missing", name)
		if there {
			require.NoError(t, d.schema(real+pointer("headers", name, "schema")).Validate(value[0]), "header %s", name)
		}
	}
	for name := range a.header {
		known := slices.ContainsFunc(slices.Collect(maps.Keys(documented)), func(n string) bool { return strings.EqualFold(n, name) })
		require.True(t, known || slices.Contains(ordinary, name), "header %s is not documented", name)
	}
	content := d.object(real + "/content")
	if len(content) == 0 {
		require.Empty(t, a.body)
		return ""
	}
	mediaType, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	require.NoError(t, err)
	require.Contains(t, content, mediaType, "the content type is not documented")
	if mediaType == "text/event-stream" {
		d.checkStream(t, real+pointer("content", mediaType, "x-event-data"), a.body)
		return mediaType
	}
	if mediaType == "application/x-ndjson" {
		for line := range strings.Lines(a.body) {
			require.NoError(t, d.valid(real+pointer("content", mediaType, "x-line"), []byte(line)), line)
		}
		return mediaType
	}
	require.NoError(t, d.valid(real+pointer("content", mediaType, "schema"), []byte(a.body)), a.body)
	return mediaType
}

// checkStream holds each event of a stream to the schema of its data, and its id and type to its data.
func (d *document) checkStream(t *testing.T, ptr, stream string) {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	require.NotEmpty(t, events)
	for _, text := range events {
		lines := strings.Split(text, "\n")
		require.Len(t, lines, 3, text)
		data, ok := strings.CutPrefix(lines[2], "data: ")
		require.True(t, ok, text)
		require.NoError(t, d.valid(ptr, []byte(data)), data)
		var e struct{ ID, Type string }
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		require.Equal(t, []string{"id: " + e.ID, "event: " + e.Type}, lines[:2])
	}
}

// keywords are those of JSON Schema 2020-12 that the document uses. Another one would be ignored: it is a mistake.
var keywords = []string{
	"$ref", "type", "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "items",
	"properties", "required", "additionalProperties", "allOf", "anyOf", "oneOf", "contentEncoding", "default", "description",
}

// everySchema calls each with every schema of the document.
func (d *document) everySchema(each func(where string, schema map[string]any)) {
	var walk func(where string, v any, schema bool)
	walk = func(where string, v any, schema bool) {
		switch v := v.(type) {
		case []any:
			for i, e := range v {
				walk(fmt.Sprint(where, "/", i), e, schema)
			}
		case map[string]any:
			if schema {
				each(where, v)
			}
			for key, child := range v {
				switch {
				case key == "example" || key == "examples" || key == "enum" || key == "required" || schema && key == "default":
				case key == "properties" || key == "schemas":
					for name, s := range child.(map[string]any) {
						walk(where+pointer(key, name), s, true)
					}
				default:
					walk(where+pointer(key), child, schema || key == "schema" || key == "x-event-data")
				}
			}
		}
	}
	walk("", d.root, false)
}
