package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// httpMethods are those of a tool's request. CONNECT and TRACE are none: they are about the way, and not about the host.
var httpMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// ourHeaders are the fields that a request has anyway, or that are about its way.
var ourHeaders = []string{
	"accept-encoding", "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "proxy-authenticate",
	"proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// httpTool wants a tool of kind http to have a request that its schema's arguments fill, and no other tool to have one.
func (c *checker) httpTool(at string, t ToolSpec) {
	if t.Kind != KindHTTP {
		c.that(t.HTTP == nil, at+".url", "got a request, want none: only kind http has one")
		return
	}
	if t.HTTP == nil {
		c.add(at+".url", "got nothing, want the URL that a tool of kind http asks")
		return
	}
	h := t.HTTP
	oneOf(c, at+".method", h.Method, httpMethods...)
	r := requestCheck{checker: c, args: properties(t.Schema), required: requiredOf(t.Schema)}
	r.url(at+".url", h)
	for _, name := range slices.Sorted(maps.Keys(h.Query)) {
		r.template(at+".query."+name, h.Query[name])
	}
	r.headers(at+".headers", h.Headers)
	if h.Body != nil {
		r.body(at+".body", h)
	}
	for i, host := range h.Allow {
		c.that(host != "" && !strings.ContainsAny(host, "/{}$@*\\ "), fmt.Sprintf("%s.allowHosts[%d]", at, i), "got something else, want host or host:port")
	}
}

// requestCheck checks the templates of one request.
type requestCheck struct {
	*checker
	args, required map[string]bool
}

func (c requestCheck) template(path, text string) []TemplatePart {
	parts, err := RequestParts(text)
	if err != nil {
		c.add(path, err.Error())
	}
	for _, p := range parts {
		c.that(p.Arg == "" || c.args[p.Arg], path, fmt.Sprintf("got {%s}, want the name of a property of schema", p.Arg))
	}
	return parts
}

func (c requestCheck) url(path string, h *HTTPTool) {
	u, err := h.Request()
	if err != nil {
		c.add(path, err.Error())
		return
	}
	for _, p := range c.template(path, u.Path) {
		c.that(p.Arg == "" || c.required[p.Arg], path, fmt.Sprintf("got {%s} in the path, want a property that schema requires", p.Arg))
		c.that(!strings.ContainsAny(p.Text, "{}"), path, "got a brace in the path, want {name} or ${secret:NAME}")
	}
	for _, segment := range strings.Split(u.Path, "/") {
		c.that(segment != "." && segment != "..", path, "got . or .. in the path, want the path itself")
	}
	for _, q := range u.Query {
		c.that(!strings.ContainsAny(q.Name, "{}$"), path, "got a template as the name of a query parameter, want the name itself")
		for _, p := range c.template(path, q.Value) {
			c.that(!strings.ContainsAny(p.Text, "{}"), path, "got a brace in the query, want {name} or ${secret:NAME}")
		}
		_, twice := h.Query[q.Name]
		c.that(!twice, path, "got a query parameter that query has, too, want each once")
	}
}

func (c requestCheck) headers(at string, headers map[string]string) {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		path, lower := at+"."+name, strings.ToLower(name)
		c.that(name != "" && onlyOf(name, "!#$%&'*+-.^_`|~"), path, "got no name of a header field, want one")
		c.that(!slices.Contains(ourHeaders, lower), path, "got a header field that is not the tool's to say, want none of that name")
		c.that(!seen[lower], path, "got a header field a second time, want each once")
		seen[lower] = true
		for _, p := range c.template(path, headers[name]) {
			c.that(!strings.ContainsFunc(p.Text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }), path, "got a control character, want none")
		}
		c.that(lower != "content-type" || strings.Contains(headers[name], "json"), path, "got another type, want one of JSON: that is what a body is")
	}
}

func (c requestCheck) body(path string, h *HTTPTool) {
	c.that(h.Method != "GET" && h.Method != "HEAD", path, "got a body, want none: "+h.Method+" has none")
	compact, err := CompactJSON(h.Body, JSONLimits{})
	if err != nil {
		c.add(path, "got what is no JSON, want the body")
		return
	}
	v, err := decodeNumbers(compact)
	if err != nil {
		c.add(path, "got what is no JSON, want the body")
		return
	}
	c.strings(path, v)
}

// strings checks every string of a body, which is a template.
func (c requestCheck) strings(path string, v any) {
	switch v := v.(type) {
	case string:
		c.template(path, v)
	case []any:
		for _, item := range v {
			c.strings(path, item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.that(!strings.Contains(key, secretOpen), path, "got a secret as a key, want it as a value")
			c.strings(path, v[key])
		}
	}
}

// properties are the names of an object schema's properties, at its top.
func properties(schema json.RawMessage) map[string]bool {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	names := map[string]bool{}
	if json.Unmarshal(schema, &s) != nil { // checkSchema says what is wrong with it
		return names
	}
	for name := range s.Properties {
		names[name] = true
	}
	return names
}

func requiredOf(schema json.RawMessage) map[string]bool {
	var s struct {
		Required []string `json:"required"`
	}
	names := map[string]bool{}
	if json.Unmarshal(schema, &s) != nil { // likewise
		return names
	}
	for _, name := range s.Required {
		names[name] = true
	}
	return names
}
