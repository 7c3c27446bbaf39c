package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/stretchr/testify/require"
)

const openapiFile = "../../docs/openapi.yaml"

// openapi is docs/openapi.yaml. Every reference in it has been found. Answers may gain members, but those of this server
// have none that is not documented: every object is closed here.
var openapi = sync.OnceValues(func() (*v3.Document, error) {
	text, err := os.ReadFile(openapiFile)
	if err != nil {
		return nil, err
	}
	var root any
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	everySchema("", root, false, func(where string, s map[string]any) {
		if s["type"] == "object" && s["properties"] != nil && s["additionalProperties"] == nil && !strings.Contains(where, "/Said") { // which is a request's
			s["additionalProperties"] = false
		}
	})
	if text, err = json.Marshal(root); err != nil {
		return nil, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, err
	}
	m, err := doc.BuildV3Model()
	if err != nil {
		return nil, err
	}
	return &m.Model, nil
})

var schemas = schema_validation.NewSchemaValidator(config.WithFormatAssertions())

// document is docs/openapi.yaml.
type document struct {
	*v3.Document
	t *testing.T
}

// seen has the answers that tests were given: METHOD PATH STATUS MEDIATYPE.
var seen sync.Map

func readDocument(t *testing.T) *document {
	t.Helper()
	return &document{must(openapi()), t}
}

// schema is a component.
func (d *document) schema(name string) *base.Schema {
	d.t.Helper()
	s := d.Components.Schemas.GetOrZero(name)
	require.NotNil(d.t, s, "there is no schema %s", name)
	return s.Schema()
}

// valid checks JSON against a schema.
func valid(s *base.Schema, raw []byte) error {
	ok, wrong := schemas.ValidateSchemaBytes(s, raw)
	switch {
	case len(raw) == 0:
		return errors.New("it is empty")
	case ok:
		return nil
	}
	var all []error
	for _, e := range wrong {
		all = append(all, e)
		for _, at := range e.SchemaValidationErrors {
			all = append(all, fmt.Errorf("%s: %s", at.FieldPath, at.Reason))
		}
	}
	return errors.Join(all...)
}

// served is the operation that a request is for; "" = none.
func (d *document) served(r *http.Request) string {
	all := http.NewServeMux()
	for _, op := range d.operations() {
		all.Handle(op, http.NotFoundHandler())
	}
	_, op := all.Handler(r)
	return op
}

// operations lists what is documented, each as METHOD PATH, sorted.
func (d *document) operations() []string {
	var all []string
	for path, item := range d.Paths.PathItems.FromOldest() {
		for method := range item.GetOperations().KeysFromOldest() {
			all = append(all, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(all)
	return all
}

func (d *document) operation(op string) *v3.Operation {
	d.t.Helper()
	method, path, _ := strings.Cut(op, " ")
	item := d.Paths.PathItems.GetOrZero(path)
	require.NotNil(d.t, item, "%s is not documented", op)
	return item.GetOperations().GetOrZero(strings.ToLower(method))
}

// body is an operation's JSON body; nil = it takes none.
func (d *document) body(op string) *v3.MediaType {
	body := d.operation(op).RequestBody
	if body == nil {
		return nil
	}
	return body.Content.GetOrZero("application/json")
}

// examples are those of an operation's JSON body, as the bench can take them.
func (d *document) examples(op string) []string {
	d.t.Helper()
	body := d.body(op)
	if body == nil {
		return nil
	}
	var all []string
	for _, e := range body.Schema.Schema().Examples {
		var v any
		require.NoError(d.t, e.Decode(&v))
		raw, err := json.Marshal(v)
		require.NoError(d.t, err)
		all = append(all, strings.ReplaceAll(string(raw), `"refunds"`, `"payer"`))
	}
	return all
}

// example is the first of them; "" = there is none.
func (d *document) example(op string) string {
	for _, first := range d.examples(op) {
		return first
	}
	return ""
}

// parameters are the names of an operation's parameters in a place: query, header or path.
func (d *document) parameters(op, in string) []string {
	d.t.Helper()
	var names []string
	_, path, _ := strings.Cut(op, " ")
	for _, p := range slices.Concat(d.Paths.PathItems.GetOrZero(path).Parameters, d.operation(op).Parameters) {
		if p.In == in {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// answers are the documented answers of an operation other than errors, as they are counted in seen.
func (d *document) answers(op string) []string {
	var all []string
	for status, r := range d.operation(op).Responses.Codes.FromOldest() {
		if r.Content == nil {
			all = append(all, op+" "+status+" ")
		}
		for mediaType := range r.Content.KeysFromOldest() {
			all = append(all, op+" "+status+" "+mediaType)
		}
	}
	return all
}

// check holds an answer to what is documented for the operation; "" = nothing is.
func (d *document) check(op string, a answer) {
	d.t.Helper()
	if op == "" {
		return
	}
	responses := d.operation(op).Responses
	documented := responses.FindResponseByCode(a.status)
	if a.status >= http.StatusBadRequest {
		documented = responses.Default
	}
	mediaType := d.checkAnswer(documented, a)
	seen.Store(fmt.Sprintf("%s %d %s", op, a.status, mediaType), true)
}

// ordinary are the headers of every HTTP answer, and those that Guard adds to each of its port.
var ordinary = []string{
	"Content-Type", "Content-Length", "Date", "Cache-Control", "X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Referrer-Policy", "X-Frame-Options", "X-Accel-Buffering",
}

// checkAnswer holds an answer to a documented response.
func (d *document) checkAnswer(documented *v3.Response, a answer) (mediaType string) {
	t := d.t
	t.Helper()
	require.NotNil(t, documented, "status %d is not documented: %s", a.status, a.body)
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	known := slices.Clone(ordinary)
	for name, h := range documented.Headers.FromOldest() {
		name = http.CanonicalHeaderKey(name)
		known = append(known, name)
		value, there := a.header[name]
		require.True(t, there || !h.Required, "header %s is missing", name)
		if there {
			text := must(json.Marshal(value[0]))
			require.NoError(t, valid(h.Schema.Schema(), text), "header %s", name)
		}
	}
	for name := range a.header {
		require.Contains(t, known, name, "header %s is not documented", name)
	}
	if documented.Content == nil {
		require.Empty(t, a.body)
		return ""
	}
	mediaType, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	require.NoError(t, err)
	content := documented.Content.GetOrZero(mediaType)
	require.NotNil(t, content, "the content type %s is not documented", mediaType)
	switch mediaType {
	case "text/event-stream":
		d.checkStream(d.extension(content, "x-event-data"), a.body)
	case "application/x-ndjson":
		line := d.extension(content, "x-line")
		for text := range strings.Lines(a.body) {
			require.NoError(t, valid(line, []byte(text)), text)
		}
	default:
		require.NoError(t, valid(content.Schema.Schema(), []byte(a.body)), a.body)
	}
	return mediaType
}

// extension is the schema that an extension of a media type refers to.
func (d *document) extension(m *v3.MediaType, key string) *base.Schema {
	d.t.Helper()
	var of struct {
		Ref string `yaml:"$ref"`
	}
	node := m.Extensions.GetOrZero(key)
	require.NotNil(d.t, node, key)
	require.NoError(d.t, node.Decode(&of))
	return d.schema(path.Base(of.Ref))
}

// checkStream holds each event of a stream to the schema of its data, and its id and type to its data.
func (d *document) checkStream(of *base.Schema, stream string) {
	t := d.t
	t.Helper()
	events := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	require.NotEmpty(t, events)
	for _, text := range events {
		lines := strings.Split(text, "\n")
		if text == "data: [DONE]" {
			continue
		}
		if chunk, ok := strings.CutPrefix(text, "data: "); ok { // of a chat
			require.NoError(t, valid(of, []byte(chunk)), chunk)
			continue
		}
		require.Len(t, lines, 3, text)
		data, ok := strings.CutPrefix(lines[2], "data: ")
		require.True(t, ok, text)
		require.NoError(t, valid(of, []byte(data)), data)
		var e struct{ ID, Type string }
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		require.Equal(t, []string{"id: " + e.ID, "event: " + e.Type}, lines[:2])
	}
}

// keywords are those of JSON Schema 2020-12 that the document uses. Another one would be ignored: it is a mistake.
var keywords = []string{
	"$ref", "type", "enum", "const", "pattern", "format", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "items",
	"properties", "required", "additionalProperties", "allOf", "anyOf", "oneOf", "not", "contentEncoding", "default", "description", "examples", "x-types",
	"discriminator", "minProperties", "maxProperties",
}

// everySchema calls each with every schema in v, which is one itself or another part of the document.
func everySchema(where string, v any, schema bool, each func(where string, schema map[string]any)) {
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			everySchema(fmt.Sprint(where, "/", i), e, schema, each)
		}
	case map[string]any:
		if schema {
			each(where, v)
		}
		for key, child := range v {
			switch {
			case key == "examples" || key == "enum" || key == "required" || schema && (key == "default" || key == "x-types" || key == "discriminator"):
			case key == "properties" || key == "schemas":
				for name, s := range child.(map[string]any) {
					everySchema(where+"/"+key+"/"+name, s, true, each)
				}
			default:
				everySchema(where+"/"+key, child, schema || key == "schema", each)
			}
		}
	}
}
