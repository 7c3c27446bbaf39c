package agentfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/tool"
)

// The bounds of a document of OpenAPI: of its bytes, of what it shows of itself to a model, and of the levels and
// values that one operation takes out of it.
const (
	maxDocument    = 16 << 20
	maxDescription = 1024 // runes
	maxLevel       = 48
	maxNodes       = 50_000
)

// operation makes the tool of an operation of an OpenAPI document. It is read now, and the tool is pinned as it comes
// out.
func (r *reader) operation(f field, e *httpEntry, t *agent.ToolSpec) {
	for _, key := range []string{"method", "url", "body", "schema"} {
		if _, ok := f.member(key); ok {
			r.add(join(f.path, key), "got a value, want none: it comes from the operation")
		}
	}
	e.request.URL = "https://unread.invalid" // until the operation gives its own, or a problem of it would be two
	if e.openapi == "" || e.operation == "" {
		r.add(join(f.path, "openapi"), "want both openapi, a file, and operation, the operationId of one")
		return
	}
	doc := r.documents[e.openapi]
	if doc == nil {
		var err error
		if doc, err = readDocument(r.opt, e.openapi); err != nil {
			r.add(join(f.path, "openapi"), err.Error())
			return
		}
		r.documents[e.openapi] = doc
	}
	op, err := doc.operation(e.operation)
	if err != nil {
		r.add(join(f.path, "operation"), err.Error())
		return
	}
	if e.server == "" {
		if e.server, err = op.server(); err != nil {
			r.add(join(f.path, "server"), err.Error())
			return
		}
	}
	if err := op.tool(e, t); err != nil {
		r.add(join(f.path, "operation"), err.Error())
	}
}

// readDocument reads a file of JSON or YAML that stands in the agent's folder or below it.
func readDocument(opt Options, name string) (document, error) {
	if opt.Dir == "" && opt.Files == nil || !filepath.IsLocal(name) {
		return nil, errors.New("want the path of a file in the agent's folder or below it")
	}
	var f io.ReadCloser
	var err error
	if opt.Files == nil {
		f, err = os.OpenInRoot(opt.Dir, name)
	} else if f, err = opt.Files.Open(path.Clean(filepath.ToSlash(name))); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the file is not in the agent's folder: is it where //go:embed looks?")
	}
	if err != nil {
		return nil, errors.New("the file cannot be opened in the agent's folder")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	switch {
	case err != nil:
		return nil, errors.New("the file cannot be read")
	case len(data) > maxDocument:
		return nil, fmt.Errorf("got a file of more than %d bytes, want a smaller one", maxDocument)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n\ufeff"), []byte("{")) {
		sub := newReader(name, Options{})
		sub.numbersAsKeys = true
		tree, ok := sub.tree(data)
		if !ok || sub.err() != nil {
			return nil, sub.err()
		}
		data = tree.json()
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	d.UseNumber()
	var root document
	if err := d.Decode(&root); err != nil || d.More() {
		return nil, errors.New("the file is no JSON object, nor YAML")
	}
	if version, _ := root["openapi"].(string); !strings.HasPrefix(version, "3.") {
		return nil, errors.New("want a document of OpenAPI 3")
	}
	return root, nil
}

// document is one of OpenAPI.
type document map[string]any

// operation finds one by its operationId.
func (d document) operation(id string) (operation, error) {
	found := operation{id: id}
	var parts map[string]any // of the document, that found is read from
	var known []string
	paths, _ := d["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		around, _ := paths[path].(map[string]any)
		for _, method := range []string{"get", "head", "post", "put", "patch", "delete", "options"} {
			self, _ := around[method].(map[string]any)
			name, _ := self["operationId"].(string)
			switch {
			case name == "":
				continue
			case name == id && parts != nil:
				return found, errors.New("the document has several operations of that operationId, want one")
			case name == id:
				found.method, found.path = strings.ToUpper(method), path
				parts = map[string]any{"summary": self["summary"], "description": self["description"],
					"parameters": self["parameters"], "inherited": around["parameters"],
					"requestBody": self["requestBody"], "servers": d["servers"]}
				for _, from := range []map[string]any{around, self} {
					if servers, ok := from["servers"].([]any); ok && len(servers) > 0 {
						parts["servers"] = servers
					}
				}
			}
			known = append(known, name)
		}
	}
	if parts != nil {
		return found, d.read(parts, &found)
	}
	slices.Sort(known)
	return found, fmt.Errorf("the document has no such operationId; it has: %.600s", strings.Join(known, ", "))
}

// read reads a part of the document with what its references lead to.
func (d document) read(part, into any) error {
	in := inliner{doc: d}
	part, err := in.inline(part, nil)
	if err != nil {
		return err
	}
	text, err := jsonx.MarshalVerbatim(part)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return jsonx.WithoutValue(decoder.Decode(into))
}

// inliner puts what references lead to in their places, and JSON Schema's keywords in those of OpenAPI 3.0.
type inliner struct {
	doc   document
	nodes int
}

// dropped are keys of OpenAPI that mean nothing to a JSON Schema, or nothing to who writes arguments. What is at kept
// is no schema; what is at named has schemas at names.
var (
	dropped = []string{"discriminator", "xml", "externalDocs", "example", "examples", "nullable", "readOnly",
		"writeOnly", "$schema", "$id", "$anchor", "$dynamicAnchor"}
	kept  = []string{"const", "default", "dependentRequired", "enum"}
	named = []string{"properties", "patternProperties", "dependentSchemas"}
)

// inline copies a value. open are the references that it stands in, and "" for each level.
func (in *inliner) inline(v any, open []string) (any, error) {
	if in.nodes++; in.nodes > maxNodes || len(open) > maxLevel {
		return nil, errors.New("its schemas are too large, or too deep")
	}
	var err error
	if list, ok := v.([]any); ok {
		out := make([]any, len(list))
		for i := 0; i < len(list) && err == nil; i++ {
			out[i], err = in.inline(list[i], open)
		}
		return out, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return v, nil
	}
	if ref, ok := m["$ref"].(string); ok {
		if i := slices.Index(open, ref); i >= 0 && slices.Contains(open[i:], "") {
			// It holds itself, and nothing says how deep.
			return map[string]any{"description": "as " + ref[strings.LastIndex(ref, "/")+1:]}, nil
		}
		to, err := in.doc.follow(ref)
		if err != nil {
			return nil, err
		}
		return in.inline(to, append(slices.Clip(open), ref))
	}
	open = append(slices.Clip(open), "")
	isReadOnly := func(name any) bool { // the server's to say
		properties, _ := m["properties"].(map[string]any)
		key, _ := name.(string)
		property, _ := properties[key].(map[string]any)
		return property["readOnly"] == true
	}
	out := map[string]any{}
	for key, v := range m {
		names, isNamed := v.(map[string]any)
		list, isList := v.([]any)
		switch {
		case slices.Contains(dropped, key), strings.HasPrefix(key, "x-"):
			continue
		case slices.Contains(kept, key):
			out[key] = v
		case key == "required" && isList:
			out[key] = slices.DeleteFunc(slices.Clone(list), isReadOnly)
		case slices.Contains(named, key) && isNamed:
			inside := map[string]any{}
			for name, schema := range names {
				if key == "properties" && isReadOnly(name) {
					continue
				}
				if inside[name], err = in.inline(schema, open); err != nil {
					return nil, err
				}
			}
			out[key] = inside
		default:
			if out[key], err = in.inline(v, open); err != nil {
				return nil, err
			}
		}
	}
	rewriteOldKeywords(m, out)
	return out, nil
}

// rewriteOldKeywords writes to out what OpenAPI 3.0 says by other keywords than JSON Schema.
func rewriteOldKeywords(m, out map[string]any) {
	if kind, ok := m["type"].(string); ok && m["nullable"] == true {
		out["type"] = []any{kind, "null"}
		if list, ok := m["enum"].([]any); ok && !slices.Contains(list, nil) {
			out["enum"] = append(slices.Clip(list), nil)
		}
	}
	for key, bound := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		if exclusive, ok := m[key].(bool); ok {
			delete(out, key)
			if n, ok := m[bound].(json.Number); ok && exclusive {
				out[key] = n
				delete(out, bound)
			}
		}
	}
}

// follow is what a reference leads to. It leads nowhere but into the document (RFC 6901, a fragment of a URI).
func (d document) follow(ref string) (any, error) {
	escaped, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, fmt.Errorf("got a reference to %.80q, want one that begins with #/, into the document", ref)
	}
	pointer, err := url.PathUnescape(escaped)
	if err != nil {
		pointer = escaped // a stray %: written as it is
	}
	path, err := jsonx.ParsePointer("/" + pointer)
	var v any = map[string]any(d)
	for _, token := range path {
		switch in := v.(type) {
		case map[string]any:
			v = in[token]
		case []any:
			v = nil
			if i, ok := jsonx.ArrayIndex(token); ok && i < len(in) {
				v = in[i]
			}
		default:
			v = nil
		}
	}
	if v == nil || err != nil {
		return nil, fmt.Errorf("the reference %.80q leads to nothing", ref)
	}
	return v, nil
}

// operation is one of a document, without references.
type operation struct {
	id, method, path      string
	Summary, Description  string
	Parameters, Inherited []parameter // Inherited are the path's
	Servers               []struct {
		URL       string
		Variables map[string]struct{ Default any }
	}
	RequestBody struct {
		Required bool
		Content  map[string]struct{ Schema any }
	}
}

type parameter struct {
	Name, In, Description, Style string
	Required                     bool
	Explode                      *bool
	Schema                       any
}

// server is the only one that the operation has.
func (op operation) server() (string, error) {
	if len(op.Servers) != 1 {
		return "", fmt.Errorf("the document has %d servers, want the URL of one here", len(op.Servers))
	}
	url := op.Servers[0].URL
	for name, v := range op.Servers[0].Variables {
		url = strings.ReplaceAll(url, "{"+name+"}", fmt.Sprint(v.Default))
	}
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return "", errors.New("the document's server is no http or https URL, want one here")
	}
	return url, checkSecrets(url)
}

// checkSecrets refuses a text of the document that names a secret: whoever wrote it would be sent its value.
func checkSecrets(text string) error {
	if strings.Contains(text, "${secret:") {
		return errors.New("the document names a secret in server, path or media type, which agent.yaml alone may")
	}
	return nil
}

// tool lays the operation under what the entry says.
func (op operation) tool(e *httpEntry, t *agent.ToolSpec) error {
	a := arguments{
		properties: map[string]any{}, headers: map[string]string{}, query: map[string]string{}, path: op.path,
	}
	known := map[[2]string]bool{}
	for _, p := range append(op.Parameters, op.Inherited...) {
		if at := [2]string{p.In, p.Name}; !known[at] && !e.sets(p.In, p.Name) {
			known[at] = true
			if err := a.addParameter(p); err != nil {
				return fmt.Errorf("parameter %.80s in %.20s: %w", p.Name, p.In, err)
			}
		}
	}
	if op.method != "GET" && op.method != "HEAD" {
		if err := a.addBody(op); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(op.path, "/") {
		return errors.New("its path does not begin with /")
	}
	if err := checkSecrets(op.path + a.headers["Content-Type"]); err != nil {
		return err
	}
	e.request.Method, e.request.URL, e.request.Body = op.method, strings.TrimSuffix(e.server, "/")+a.path, a.body
	for own, all := range map[*map[string]string]map[string]string{
		&e.request.Headers: a.headers, &e.request.Query: a.query,
	} {
		if maps.Copy(all, *own); len(all) > 0 {
			*own = all
		}
	}
	t.Name = cmp.Or(t.Name, op.id)
	if t.Description == "" {
		t.Description = strings.TrimSpace(strings.TrimSpace(op.Summary) + "\n" + strings.TrimSpace(op.Description))
		if r := []rune(t.Description); len(r) > maxDescription {
			t.Description = string(r[:maxDescription-4]) + " […]"
		}
	}
	schema := map[string]any{"type": "object", "properties": a.properties}
	if len(a.required) > 0 {
		slices.Sort(a.required)
		schema["required"] = slices.Compact(a.required)
	}
	tool.DropPatterns(schema)
	var err error
	if t.Schema, err = jsonx.MarshalVerbatim(schema); err == nil {
		_, err = tool.Compile(t.Schema)
	}
	return err
}

// sets reports whether the file itself, or the request, defines a parameter.
func (e *httpEntry) sets(in, name string) bool {
	_, inQuery := e.request.Query[name]
	own := slices.Collect(maps.Keys(e.request.Headers))
	own = append(append(own, "Accept", "Content-Type", "Authorization"), agent.ReservedHeaders...)
	return in == "query" && inQuery ||
		in == "header" && slices.ContainsFunc(own, func(h string) bool { return strings.EqualFold(h, name) })
}

// arguments are what becomes of an operation's parameters and body: the arguments of a tool, and where they go.
type arguments struct {
	properties     map[string]any
	required       []string
	path           string // with the arguments in braces
	headers, query map[string]string
	body           json.RawMessage
}

// notInArguments are the characters that Claude refuses in the name of an argument, which has 64 at most.
var notInArguments = regexp.MustCompile(`[^a-zA-Z0-9_.-]+`)

const maxArgumentName = 50 // so that there is room for what tells two of one name apart

// addParameter makes an argument of a parameter, under a name that every model takes. One that no template can write is
// left out, if it may be.
func (a *arguments) addParameter(p parameter) error {
	schema := schemaOf(p.Schema)
	plain := p.Style == "" || p.Style == map[string]string{"query": "form", "path": "simple", "header": "simple"}[p.In]
	switch {
	case p.Schema == nil, p.In == "cookie", !plain, allowsType(schema, "object"),
		allowsType(schema, "array") && (p.In != "query" || p.Explode != nil && !*p.Explode):
		if p.Required {
			return errors.New("it is written in a way that tools do not have")
		}
		return nil
	}
	name := p.Name
	if notInArguments.MatchString(name) || len(name) > maxArgumentName {
		name = strings.Trim(notInArguments.ReplaceAllString(name, "_"), "_.")
		name = name[:min(len(name), maxArgumentName)]
	}
	if name == "" {
		return errors.New("got a name that no argument can have")
	}
	for a.properties[name] != nil {
		name += "_" + p.In
	}
	if p.Description != "" && schema["description"] == nil {
		schema["description"] = p.Description
	}
	a.properties[name] = schema
	if p.Required {
		a.required = append(a.required, name)
	}
	switch p.In {
	case "path":
		a.path = strings.ReplaceAll(a.path, "{"+p.Name+"}", "{"+name+"}")
	case "query":
		a.query[p.Name] = "{" + name + "}"
	case "header":
		a.headers[p.Name] = "{" + name + "}"
	}
	return nil
}

// schemaOf is a schema as a mapping: true, or nothing, is one that takes anything.
func schemaOf(v any) map[string]any {
	if m, ok := v.(map[string]any); ok {
		return m
	}
	return map[string]any{}
}

// allowsType reports whether a schema allows a type by name.
func allowsType(schema map[string]any, kind string) bool {
	switch t := schema["type"].(type) {
	case string:
		return t == kind
	case []any:
		return slices.Contains(t, any(kind))
	}
	return schema["properties"] != nil && kind == "object"
}

// addBody makes arguments of a body of JSON: of its properties, or of all of it, where they cannot stand beside the
// parameters.
func (a *arguments) addBody(op operation) error {
	b := op.RequestBody
	kind, schema := "", map[string]any(nil)
	for _, k := range append([]string{"application/json"}, slices.Sorted(maps.Keys(b.Content))...) {
		media, ok := b.Content[k]
		kind, _, _ = strings.Cut(k, ";")
		if ok && (kind == "application/json" || strings.HasSuffix(kind, "+json")) {
			schema = schemaOf(media.Schema)
			break
		}
	}
	switch {
	case schema == nil && b.Required:
		return errors.New("its body is no JSON, which is what tools send")
	case schema == nil:
		return nil
	case kind != "application/json":
		a.headers["Content-Type"] = kind
	}
	// Only these methods send the arguments that no template has.
	sendsRest := (&agent.HTTPTool{Method: op.method}).HasBody()
	if properties, ok := a.flatProperties(schema); ok && sendsRest {
		maps.Copy(a.properties, properties)
		list, _ := schema["required"].([]any)
		for _, name := range list {
			if name, ok := name.(string); ok && b.Required && properties[name] != nil {
				a.required = append(a.required, name)
			}
		}
		return nil
	}
	if a.properties["body"] != nil {
		return errors.New("a parameter is called body, and the body cannot stand beside it")
	}
	a.properties["body"], a.body = schema, json.RawMessage(`"{body}"`)
	if b.Required {
		a.required = append(a.required, "body")
	}
	return nil
}

// flatProperties returns the properties of a plain object body, if no parameter has the name of one.
func (a *arguments) flatProperties(schema map[string]any) (map[string]any, bool) {
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 {
		return nil, false
	}
	for key := range schema {
		if !slices.Contains([]string{"type", "properties", "required", "description", "title", "additionalProperties"}, key) {
			return nil, false
		}
	}
	if open, ok := schema["additionalProperties"]; ok && open != false {
		return nil, false
	}
	for name := range properties {
		if a.properties[name] != nil || notInArguments.MatchString(name) {
			return nil, false
		}
	}
	return properties, true
}
