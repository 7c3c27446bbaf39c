package agentfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// The bounds of a document of OpenAPI: bytes of a file, of what it shows of itself to a model, and how many operations
// a message names.
const (
	maxDocument    = 16 << 20
	maxDescription = 1024 // runes
	maxNamed       = 20
)

// operation makes the tool of an operation of an OpenAPI document. It is read now, and the tool is pinned as it comes
// out.
func (r *reader) operation(f field, e *httpEntry, t *agent.ToolSpec) {
	at := join(f.path, "openapi")
	for _, key := range []string{"method", "url", "body", "schema"} {
		if _, ok := f.member(key); ok {
			r.add(join(f.path, key), "got a value, want none: it comes from the operation")
		}
	}
	if e.openapi == "" || e.operation == "" {
		r.add(at, "want both openapi, a file, and operation, the operationId of one")
		return
	}
	root, err := readDocument(r.opt.Dir, e.openapi)
	if err != nil {
		r.add(at, err.Error())
		return
	}
	doc := document{root: root}
	op, err := doc.operation(e.operation)
	if err != nil {
		r.add(join(f.path, "operation"), err.Error())
		return
	}
	if err := doc.tool(op, e, t); err != nil {
		key := "operation"
		if errors.Is(err, errServer) {
			key = "server"
		}
		r.add(join(f.path, key), err.Error())
	}
}

// readDocument reads a file of JSON or YAML that stands in a folder or below it.
func readDocument(dir, name string) (map[string]any, error) {
	if dir == "" || !filepath.IsLocal(name) {
		return nil, errors.New("want the path of a file in the agent's folder or below it")
	}
	f, err := os.OpenInRoot(dir, name)
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
		tree, ok := sub.tree(data)
		if !ok || sub.err() != nil {
			return nil, sub.err()
		}
		data = tree.json()
	}
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	d.UseNumber()
	var root map[string]any
	if err := d.Decode(&root); err != nil || d.More() {
		return nil, errors.New("the file is no JSON object, nor YAML")
	}
	if version, _ := root["openapi"].(string); !strings.HasPrefix(version, "3.") {
		return nil, errors.New("want a document of OpenAPI 3")
	}
	return root, nil
}

// operationOf is an operation with what is around it.
type operationOf struct {
	id, method, path string
	self, around     map[string]any // around is the path's
}

// document is one of OpenAPI.
type document struct{ root map[string]any }

var methods = []string{"get", "head", "post", "put", "patch", "delete", "options"}

// operation finds one by its operationId.
func (d document) operation(id string) (operationOf, error) {
	var found []operationOf
	var known []string
	paths, _ := d.root["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item, err := d.object(paths[path])
		if err != nil {
			return operationOf{}, err
		}
		for _, method := range methods {
			self, _ := item[method].(map[string]any)
			name, _ := self["operationId"].(string)
			if name == "" {
				continue
			}
			known = append(known, name)
			if name == id {
				found = append(found, operationOf{id, method, path, self, item})
			}
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return operationOf{}, errors.New("the document has several operations of that operationId, want one")
	}
	slices.Sort(known)
	more := ""
	if len(known) > maxNamed {
		known, more = known[:maxNamed], ", ..."
	}
	return operationOf{}, fmt.Errorf("the document has no such operationId; it has: %.600s%s", strings.Join(known, ", "),
		more)
}

// tool lays an operation under what the entry says.
func (d document) tool(op operationOf, e *httpEntry, t *agent.ToolSpec) error {
	server, err := d.server(op, e.server)
	if err != nil {
		return err
	}
	s := shape{doc: d, entry: e, properties: map[string]any{}, headers: map[string]string{}, query: map[string]string{}}
	if err := s.parameters(op); err != nil {
		return err
	}
	if err := s.requestBody(op); err != nil {
		return err
	}
	e.request.Method, e.request.URL = strings.ToUpper(op.method), strings.TrimSuffix(server, "/")+op.path
	e.request.Headers, e.request.Query, e.request.Body = s.overlay(s.headers, e.request.Headers),
		s.overlay(s.query, e.request.Query), s.body
	if t.Name == "" {
		t.Name = op.id
	}
	if t.Description == "" {
		summary, _ := op.self["summary"].(string)
		text, _ := op.self["description"].(string)
		t.Description = strings.TrimSpace(strings.TrimSpace(summary) + "\n" + strings.TrimSpace(text))
		if r := []rune(t.Description); len(r) > maxDescription {
			t.Description = string(r[:maxDescription]) + " […]"
		}
	}
	schema := map[string]any{"type": "object", "properties": s.properties}
	if len(s.required) > 0 {
		slices.Sort(s.required)
		schema["required"] = slices.Compact(s.required)
	}
	t.Schema, err = jsonx.MarshalVerbatim(schema)
	return err
}

// errServer marks what is wrong with servers.
var errServer = errors.New("")

// server is where an operation is: as the entry says, else the only one that the document has.
func (d document) server(op operationOf, said string) (string, error) {
	if said != "" {
		return said, nil
	}
	var servers []any
	for _, from := range []map[string]any{op.self, op.around, d.root} {
		if list, ok := from["servers"].([]any); ok && len(list) > 0 {
			servers = list
			break
		}
	}
	if len(servers) != 1 {
		return "", fmt.Errorf("%wthe document has %d servers, want the URL of one here", errServer, len(servers))
	}
	server, _ := servers[0].(map[string]any)
	url, _ := server["url"].(string)
	variables, _ := server["variables"].(map[string]any)
	for name, v := range variables {
		variable, _ := v.(map[string]any)
		if value, ok := variable["default"].(string); ok {
			url = strings.ReplaceAll(url, "{"+name+"}", value)
		}
	}
	if !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
		return "", fmt.Errorf("%wthe document's server is no http or https URL, want one here", errServer)
	}
	return url, nil
}
