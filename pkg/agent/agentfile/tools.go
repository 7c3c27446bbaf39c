package agentfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
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
	r.list(root, func(item field) {
		t := Tool{Key: item.path, Line: r.line(item.path), Extra: map[string]Value{}}
		readers := map[string]read{}
		for _, key := range extra {
			readers[key] = func(f field) { t.Extra[key] = r.value(f) }
		}
		t.Spec = r.tool(item, readers)
		tools = append(tools, t)
	})
	specs := make([]agent.ToolSpec, len(tools))
	for i, t := range tools {
		specs[i] = t.Spec
	}
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
	var lambda *agent.LambdaTool
	ownLambda := func() *agent.LambdaTool { // a copy, so that the one of the tool that t is laid over stays as it is
		if lambda == nil {
			lambda = &agent.LambdaTool{}
			if t.Lambda != nil {
				*lambda = *t.Lambda
			}
			t.Lambda = lambda
		}
		return lambda
	}
	r.delegateKeys(readers, &t)
	readers["name"] = r.text(&t.Name)
	kind := enum(r, &t.Kind, []agent.ToolKind{
		agent.KindInternal, agent.KindService, agent.KindLambda, agent.KindHTTP, agent.KindAgent,
	})
	readers["kind"] = func(f field) {
		if f.kind == kindString && f.node.text == string(agent.KindMCP) {
			r.add(f.path, "got mcp, want another kind: servers stand under mcp, and their tools are listed when a run begins")
			return
		}
		kind(f)
	}
	readers["description"] = r.text(&t.Description)
	readers["describe"] = r.text(&t.Describe)
	readers["schema"] = schema
	readers["effect"] = enum(r, &t.Effect, []run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent})
	readers["priority"] = r.whole(&t.Priority)
	readers["timeout"] = r.duration(&t.Timeout)
	readers["root"] = r.root(&t.Root)
	readers["event"] = r.text(&t.Event)
	readers["domain"] = r.text(&t.Domain)
	readers["function"] = func(f field) { r.text(&ownLambda().Function)(f) }
	readers["async"] = func(f field) { r.boolean(&ownLambda().Async)(f) }
	r.policyKeys(readers, &t)
	http := r.httpKeys(readers, &t)
	r.mapping(f, readers)
	http(f)
	return t
}

// delegateKeys are the keys of a tool that is another agent.
func (r *reader) delegateKeys(readers map[string]read, t *agent.ToolSpec) {
	of := func(key func(d *agent.Delegate) read) read {
		return func(f field) {
			if f.kind == kindSchema {
				key(&agent.Delegate{})(f)
				return
			}
			if t.Agent == nil {
				r.add(f.path, "got a value, want none: only kind agent has it")
				return
			}
			key(t.Agent)(f)
		}
	}
	readers["agent"] = of(func(d *agent.Delegate) read { return r.text(&d.Agent) })
	readers["history"] = of(func(d *agent.Delegate) read { return r.boolean(&d.History) })
	readers["budget"] = of(func(d *agent.Delegate) read {
		return r.keys(map[string]read{"tokens": r.count(&d.Tokens), "usd": r.usd(&d.USD)})
	})
}

// policyKeys adds the readers of how a tool's calls are made, whatever kind it is.
func (r *reader) policyKeys(readers map[string]read, t *agent.ToolSpec) {
	readers["retry"] = r.keys(map[string]read{
		"attempts":   r.whole(&t.Retry.Attempts),
		"backoff":    r.duration(&t.Retry.Backoff),
		"maxBackoff": r.duration(&t.Retry.MaxBackoff),
	})
	readers["concurrency"] = r.whole(&t.Concurrency)
	readers["maxResult"] = r.count(&t.MaxResult)
	readers["undo"] = func(f field) {
		var u agent.Undo
		r.mapping(f, map[string]read{"tool": r.text(&u.Tool), "args": r.raw(&u.Args)})
		t.Undo = &u
	}
	readers["precondition"] = func(f field) {
		var p agent.Precondition
		r.mapping(f, map[string]read{"tool": r.text(&p.Tool), "args": r.raw(&p.Args), "compare": r.texts(&p.Compare)})
		t.Precondition = &p
	}
}

// root reads the folder a tool is confined to: relative to the file's own folder, as an absolute path.
func (r *reader) root(dst *string) read {
	return func(f field) {
		var dir string
		r.text(&dir)(f)
		switch {
		case dir == "":
		case r.opt.Dir == "": // not read from a folder: the tool will refuse to work in none
		case filepath.IsAbs(dir):
			*dst = filepath.Clean(dir)
		default:
			*dst = filepath.Join(r.opt.Dir, dir)
		}
	}
}

// toolBase returns the tool that an entry overrides: the one with code, or an empty one.
func (r *reader) toolBase(f field) (t agent.ToolSpec, hasCode bool) {
	empty := agent.ToolSpec{Kind: agent.KindInternal, Effect: run.EffectNonIdempotent,
		Schema: json.RawMessage(`{"type":"object"}`)}
	name, ok := f.member("name")
	if !ok || name.kind != kindString {
		return empty, false
	}
	if t, isService := serviceBase(f, name.node.text); isService {
		return t, false
	}
	if k, ok := f.member("kind"); ok && k.kind == kindString { // what runs elsewhere and has no code here
		switch kind := agent.ToolKind(k.node.text); {
		case kind == agent.KindAgent: // repeatable: the same call is the same run, whose own calls pass its own gate
			return agent.ToolSpec{
				Kind: kind, Effect: run.EffectIdempotent, Schema: policy.DelegateSchema, Agent: &agent.Delegate{},
			}, false
		case kind.Remote():
			empty.Kind = kind
			return empty, false
		}
	}
	if r.opt.Tools != nil {
		if t, ok := r.opt.Tools(name.node.text); ok {
			return t, true
		}
	}
	if !r.opt.AllowUnknownTools {
		known := make([]string, len(r.opt.Registered))
		for i, t := range r.opt.Registered {
			known[i] = t.Name
		}
		r.add(name.path, fmt.Sprintf("unknown tool %s; known: %s", name.word(), cmp.Or(strings.Join(known, ", "), "none")))
	}
	return empty, false
}

// serviceBase is what an entry of a service is laid over, which has no code: nothing but the kind, or the contract of
// that name. An entry that says neither kind nor schema, nor what a canned tool gives, names a contract, too.
func serviceBase(f field, name string) (agent.ToolSpec, bool) {
	kind, hasKind := f.member("kind")
	_, hasSchema := f.member("schema")
	_, canned := f.member("results")
	contract, known := agent.Contract(name)
	switch {
	case hasKind && (kind.kind != kindString || kind.node.text != string(agent.KindService)):
		return agent.ToolSpec{}, false
	case known && !hasSchema && !canned:
		return contract, true
	case !hasKind:
		return agent.ToolSpec{}, false
	default:
		return agent.ToolSpec{Kind: agent.KindService, Effect: run.EffectNonIdempotent,
			Schema: json.RawMessage(`{"type":"object"}`)}, true
	}
}
