package agentfile

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/agent"
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

func (r *reader) tools(dst *[]agent.ToolSpec) read {
	return func(f field) {
		r.list(f, func(item field) { *dst = append(*dst, r.tool(item, map[string]read{})) })
	}
}

// tool reads an entry with these readers and the usual ones, over what the code of that name says.
func (r *reader) tool(f field, readers map[string]read) agent.ToolSpec {
	t, hasCode := r.toolBase(f)
	schema := r.raw(&t.Schema)
	if hasCode {
		schema = func(f field) { r.add(f.path, "got a schema, want none: it comes from the tool's code") }
	}
	r.delegateKeys(readers, &t)
	readers["name"] = r.text(&t.Name)
	readers["kind"] = r.noServerTool(enum(r, &t.Kind, []agent.ToolKind{agent.KindInternal, agent.KindService, agent.KindLambda, agent.KindHTTP, agent.KindAgent}))
	readers["description"] = r.text(&t.Description)
	readers["describe"] = r.text(&t.Describe)
	readers["schema"] = schema
	readers["effect"] = enum(r, &t.Effect, []run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent})
	readers["priority"] = r.whole(&t.Priority)
	readers["timeout"] = r.duration(&t.Timeout)
	readers["root"] = r.root(&t.Root)
	readers["event"] = r.text(&t.Event)
	readers["domain"] = r.text(&t.Domain)
	r.policyKeys(readers, &t)
	r.lambdaKeys(readers, &t)
	http := r.httpKeys(readers, &t)
	r.mapping(f, readers)
	http(f)
	return t
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
	empty := agent.ToolSpec{Kind: agent.KindInternal, Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`)}
	name, ok := f.member("name")
	if !ok || name.kind != kindString {
		return empty, false
	}
	if t, isService := serviceBase(f, name.node.text); isService {
		return t, false
	}
	if t, isAgent := delegate(f); isAgent {
		return t, false
	}
	if t, ok := remoteBase(f); ok {
		return t, false
	}
	if r.opt.Tools != nil {
		if t, ok := r.opt.Tools(name.node.text); ok {
			return t, true
		}
	}
	if !r.opt.AllowUnknownTools {
		r.add(name.path, fmt.Sprintf("unknown tool %s; known: %s", name.word(), r.knownTools()))
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
		return agent.ToolSpec{Kind: agent.KindService, Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`)}, true
	}
}

// remoteBase returns the empty entry for a tool that runs elsewhere and has no code here: it has only the kind.
func remoteBase(f field) (agent.ToolSpec, bool) {
	kind, ok := f.member("kind")
	if !ok || kind.kind != kindString || !agent.ToolKind(kind.node.text).Remote() {
		return agent.ToolSpec{}, false
	}
	return agent.ToolSpec{Kind: agent.ToolKind(kind.node.text), Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`)}, true
}

func (r *reader) knownTools() string {
	names := make([]string, len(r.opt.Registered))
	for i, t := range r.opt.Registered {
		names[i] = t.Name
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
