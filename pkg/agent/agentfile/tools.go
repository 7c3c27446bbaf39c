package agentfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// Tool is an entry of a list of tools that stands in a file of its own, with the keys the caller asked for.
type Tool struct {
	Spec  agent.ToolSpec
	Key   string // its path in the file: [0]
	Line  int
	Extra map[string]Value // what is there of the extra keys, by key
}

// ParseTools reads a bare list of tools: entries as under agent.yaml's tools, each with the extra keys the caller gives
// a meaning to. A non-nil error is Problems, sorted by line; the caller may add its own, with a Value's Line and Key.
func ParseTools(name string, data []byte, opt Options, extra ...string) ([]Tool, error) {
	r := newReader(name, opt)
	root, ok := r.tree(data)
	if !ok {
		return nil, r.err()
	}
	var tools []Tool
	var specs []agent.ToolSpec
	r.list(root, func(item field) {
		t := Tool{Key: item.path, Line: r.line(item.path), Extra: map[string]Value{}}
		readers := map[string]read{}
		for _, key := range extra {
			readers[key] = func(f field) { t.Extra[key] = r.value(f) }
		}
		t.Spec = r.tool(item, readers)
		tools, specs = append(tools, t), append(specs, t.Spec)
	})
	r.addChecked(agent.CheckTools(specs), "tools")
	if err := r.err(); err != nil {
		return nil, err
	}
	return tools, nil
}

// tool reads an entry with these readers and the usual ones, over what the code of that name says.
func (r *reader) tool(f field, readers map[string]read) agent.ToolSpec {
	t, hasCode := r.toolBase(f)
	schema := r.raw(&t.Schema)
	if hasCode {
		schema = func(f field) { r.add(f.path, "got a schema, want none: it comes from the tool's code") }
	}
	var lambda agent.LambdaTool // a copy, so that the one of the tool that t is laid over stays as it is
	if t.Lambda != nil {
		lambda = *t.Lambda
	}
	r.delegateKeys(readers, t.Agent)
	kind := r.byType(&t.Kind)
	readers["kind"] = func(f field) {
		if f.kind == kindString && f.node.text == string(agent.KindMCP) {
			r.add(f.path, "got mcp, want another kind: servers stand under mcp, and their tools are listed when a run begins")
			return
		}
		kind(f)
	}
	readers["schema"] = schema
	readers["root"] = r.root(&t.Root)
	readers["mcp"], readers["lambda"], readers["http"] = nil, nil, nil // by the kind's own keys
	for key, take := range map[string]read{"function": r.text(&lambda.Function), "async": r.boolean(&lambda.Async)} {
		readers[key] = func(f field) {
			t.Lambda = &lambda
			take(f)
		}
	}
	http := r.httpKeys(readers, &t)
	r.mapping(f, r.keysOf(&t, readers))
	http(f)
	return t
}

// delegateKeys adds the keys of a tool that is another agent, d; nil = it is none.
func (r *reader) delegateKeys(readers map[string]read, d *agent.Delegate) {
	to := cmp.Or(d, &agent.Delegate{})
	for key, take := range map[string]read{"agent": r.text(&to.Agent), "history": r.boolean(&to.History),
		"budget": r.keys(map[string]read{"tokens": r.byType(&to.Tokens), "usd": r.byType(&to.USD)})} {
		readers[key] = func(f field) {
			if d == nil && f.kind != kindSchema {
				r.add(f.path, "got a value, want none: only kind agent has it")
				return
			}
			take(f)
		}
	}
}

// root reads the folder a tool is confined to: relative to the file's own folder, as an absolute path.
func (r *reader) root(dst *string) read {
	return func(f field) {
		var dir string
		r.text(&dir)(f)
		switch {
		case dir == "":
		case filepath.IsAbs(dir):
			*dst = filepath.Clean(dir)
		case r.opt.Dir == "": // not read from a folder: the tool will refuse to work in none
		default:
			*dst = filepath.Join(r.opt.Dir, dir)
		}
	}
}

// toolBase returns the tool that an entry overrides: the one with code, the contract of that name, or an empty one. An
// entry of a service has no code. One that says neither kind nor schema, nor what a canned tool gives, names a
// contract, too.
func (r *reader) toolBase(f field) (t agent.ToolSpec, hasCode bool) {
	empty := agent.ToolSpec{Kind: agent.KindInternal, Effect: run.EffectNonIdempotent,
		Schema: json.RawMessage(`{"type":"object"}`)}
	name, ok := f.member("name")
	if !ok || name.kind != kindString {
		return empty, false
	}
	said, hasKind := f.member("kind")
	var kind agent.ToolKind
	if hasKind && said.kind == kindString {
		kind = agent.ToolKind(said.node.text)
	}
	_, hasSchema := f.member("schema")
	_, canned := f.member("results")
	contract, known := agent.Contract(name.node.text)
	switch {
	case known && !hasSchema && !canned && (!hasKind || kind == agent.KindService):
		return contract, false
	case kind == agent.KindAgent: // repeatable: the same call is the same run, whose own calls pass its own gate
		return agent.ToolSpec{
			Kind: kind, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema, Agent: &agent.Delegate{},
		}, false
	case kind == agent.KindService, kind.Remote(): // what runs elsewhere and has no code here
		empty.Kind = kind
		return empty, false
	}
	if r.opt.Tools != nil {
		if t, ok := r.opt.Tools(name.node.text); ok {
			return t, true
		}
	}
	if !r.opt.AllowUnknownTools {
		known := run.Map(r.opt.Registered, func(t agent.ToolSpec) string { return t.Name })
		r.add(name.path, fmt.Sprintf("unknown tool %s; known: %s", name.word(), cmp.Or(strings.Join(known, ", "), "none")))
	}
	return empty, false
}

// server reads one. A command runs in the file's own folder, unless the file names another one.
func (r *reader) server(f field) agent.MCPServer {
	m := agent.MCPServer{}
	required := true
	r.mapping(f, r.keysOf(&m, map[string]read{
		"dir":      r.root(&m.Dir),
		"tools":    r.patterns(&m.Tools),
		"allow":    r.names(&m.Allow),
		"deny":     r.names(&m.Deny),
		"required": r.boolean(&required),
		"optional": nil,
		"locked":   nil, // mcp.lock has them
	}))
	m.Optional = !required
	if m.Dir == "" && len(m.Command) > 0 && filepath.IsAbs(r.opt.Dir) {
		m.Dir = filepath.Clean(r.opt.Dir)
	}
	return m
}

// patterns reads what holds of a server's tools, in the file's order: the first pattern that matches wins.
func (r *reader) patterns(dst *[]agent.MCPPattern) read {
	return func(f field) {
		pattern := func(p *agent.MCPPattern, f field) {
			r.mapping(f, r.keysOf(p, map[string]read{"match": nil}))
		}
		if f.kind == kindSchema {
			each := schemaField(f.path)
			pattern(&agent.MCPPattern{}, each)
			f.describe(object{"type": "object", "additionalProperties": each.schema})
			return
		}
		if f.kind != kindMapping {
			r.addWrongType(f, "a mapping of patterns")
			return
		}
		for _, member := range f.members {
			p := agent.MCPPattern{Match: member.key}
			pattern(&p, f.child(member))
			*dst = append(*dst, p)
		}
	}
}

// httpEntry is what the keys of a tool of kind http say.
type httpEntry struct {
	request                    agent.HTTPTool
	openapi, operation, server string
	any                        bool // one of the keys is there
}

// httpKeys adds the keys of a request. What it gives is to be called once the entry is read: it makes the request of
// what was read. An entry that says nothing of one leaves that of the tool it is laid over.
func (r *reader) httpKeys(readers map[string]read, t *agent.ToolSpec) func(field) {
	var e httpEntry
	for key, take := range r.keysOf(&e.request, map[string]read{
		"allow": nil, "allowHosts": r.texts(&e.request.Allow),
		"openapi": r.text(&e.openapi), "operation": r.text(&e.operation), "server": r.text(&e.server),
	}) {
		readers[key] = func(f field) { e.any = true; take(f) }
	}
	return func(f field) {
		if !e.any && (t.Kind != agent.KindHTTP || t.HTTP != nil) {
			return
		}
		t.HTTP = &e.request
		if t.Kind != agent.KindHTTP { // the check says so
			return
		}
		source := "url" // the key that the URL comes from
		if e.openapi != "" {
			source = "openapi"
		}
		if e.openapi != "" || e.operation != "" {
			r.operation(f, &e, t)
		} else if e.server != "" {
			r.add(join(f.path, "server"), "got a server, want none: only an operation of openapi has one")
		}
		e.request.Method = strings.ToUpper(cmp.Or(e.request.Method, "GET"))
		if _, said := f.member("effect"); !said && (e.request.Method == "GET" || e.request.Method == "HEAD") {
			t.Effect = run.EffectRead
		}
		// Say which hosts no request would be sent to, whatever an operator allows: what resolvers read in ways
		// of their own.
		if u, err := e.request.Request(); err == nil {
			if _, err := tool.ParseURL(u.Origin); err != nil {
				r.add(join(f.path, source), strings.TrimPrefix(err.Error(), "not allowed: "))
			}
		}
		for i, host := range e.request.Allow {
			if err := tool.CheckAllowedHost(host); err != nil {
				r.add(fmt.Sprintf("%s[%d]", join(f.path, "allowHosts"), i), strings.TrimPrefix(err.Error(), "not allowed: "))
			}
		}
	}
}
