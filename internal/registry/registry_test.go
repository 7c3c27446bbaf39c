package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

type named string

func (n named) Spec() agent.ToolSpec {
	return agent.ToolSpec{
		Name: string(n), Kind: agent.KindInternal, Description: "Works.", Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`),
	}
}

func (n named) Call(context.Context, tool.Call) (agent.ToolResultData, error) {
	return agent.ToolResultData{Content: string(n)}, nil
}

// bare is a tool whose spec says no more than it has to.
type bare struct{ named }

func (b bare) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: string(b.named), Description: "Works.", Schema: json.RawMessage(`{"type":"object"}`)}
}

func TestASpecLeavesItsDefaultsOut(t *testing.T) {
	r := registry.Must(registry.New(bare{"orders.get"}))
	require.NoError(t, r.AddFS(fstest.MapFS{"zoe/agent.yaml": file("name: zoe\nsystem: s\nmodel: {provider: demo}\ntools: [{name: orders.get}]\n")}))
	require.NoError(t, r.Check())
	d, _ := r.Agent("zoe")
	require.Equal(t, []any{agent.KindInternal, run.EffectNonIdempotent}, []any{d.Tools[0].Kind, d.Tools[0].Effect})
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

func TestAddFS(t *testing.T) {
	r := registry.Must(registry.New(named("orders.get"), named("mail.send")))
	require.NoError(t, r.AddFS(fstest.MapFS{
		"zoe/agent.yaml":       file("name: zoe\nsystem: s\nmodel: {provider: demo, id: m}\ntools: [{name: orders.get}]\n"),
		"abe/agent.yaml":       file("name: abe\nsystem: s\nmodel: {provider: demo, id: m}\n"),
		"shop/ben/agent.yaml":  file("name: ben\nsystem: s\nmodel: {provider: demo, id: m}\n"),
		"agent.yaml":           file("name: top\nsystem: s\nmodel: {provider: demo, id: m}\n"),
		"README.md":            file("neither"),
		"zoe/scenarios/a.yaml": file("neither"),
	}))
	require.Equal(t, []string{"abe", "ben", "top", "zoe"}, r.Agents())
	d, ok := r.Agent("zoe")
	require.True(t, ok)
	require.Equal(t, []agent.ToolSpec{named("orders.get").Spec()}, d.Tools)
	_, ok = r.Agent("eve")
	require.False(t, ok)
	got, ok := r.Tools().Lookup("mail.send")
	require.True(t, ok)
	require.Equal(t, named("mail.send"), got)
}

// A tree in which nobody finds an agent is a mistake of whoever embedded it.
func TestAddFSWithoutAgents(t *testing.T) {
	for _, tree := range []fstest.MapFS{{}, {"README.md": file("none"), "abe/agent.yml": file("none")}} {
		r := registry.Must(registry.New())
		require.ErrorContains(t, r.AddFS(tree), "register agents: there is no agent.yaml among the files")
	}
}

// A broken file stops no other agent: whoever asks for its agent is told, and Check names every one.
func TestABrokenFileStopsNoOther(t *testing.T) {
	r := registry.Must(registry.New(named("orders.get")))
	const good = "system: s\nmodel: {provider: demo, id: m}\n"
	require.NoError(t, r.AddFS(fstest.MapFS{
		"good/agent.yaml":      file("name: good\n" + good),
		"line/agent.yaml":      file("{name: one, system: s, model: {provider: demo, id: m}}"),
		"unknown/agent.yaml":   file("name: unknown\n" + good + "tools: [{name: orders.put}]\n"),
		"broken/agent.yaml":    file("name: [\n"),
		"lost/good/agent.yaml": file("{name: refunds, colour: red}"),
		"goods/agent.yaml":     file("name: good_s\n" + good),
		"twin/agent.yaml":      file("name: twin\n" + good),
		"twins/agent.yaml":     file("name: twin\n" + good),
		"asks/agent.yaml":      file("name: asks\n" + good + "tools: [{kind: agent, name: ghost.ask, description: d, agent: ghost}]\n"),
	}))
	require.Equal(t, []string{"asks", "good", "one"}, r.Agents())
	err := r.Check()
	for name, want := range map[string]string{
		"unknown": "unknown/agent.yaml:4: tools[0].name: unknown tool orders.put", "broken": "broken/agent.yaml", "goods": "goods/agent.yaml:1: name",
		"refunds": "lost/good/agent.yaml:1: colour", "ghost": "broken/agent.yaml", // whose they are is not known
		"twin": "twins/agent.yaml: name: got twin, which is that of another agent",
	} {
		_, ok := r.Agent(name)
		require.False(t, ok, name)
		require.ErrorContains(t, err, want)
		require.Contains(t, r.Unfit(name), want)
	}
	require.ErrorContains(t, err, "ghost")
	for _, name := range []string{"good", "one"} { // though a lost one lies in a folder of that name
		require.Empty(t, r.Unfit(name))
	}
	d, _ := r.Agent("good")
	require.ErrorContains(t, r.Add(*d), "register agent good: the name is taken")
}

func TestWith(t *testing.T) {
	r := registry.Must(registry.New(named("orders.get")))
	require.NoError(t, r.AddFS(fstest.MapFS{
		"abe/agent.yaml": file("name: abe\nversion: \"1\"\nsystem: s\nmodel: {provider: demo, id: m}\n"),
		"zoe/agent.yaml": file("name: zoe\nsystem: s\nmodel: {provider: demo, id: m}\n"),
	}))
	abe, _ := r.Agent("abe")
	newer, third := *abe, *abe
	newer.Version, third.Name = "2", "ben"
	more, err := r.With(newer, third)
	require.NoError(t, err)
	require.Equal(t, []string{"abe", "ben", "zoe"}, more.Agents())
	got, _ := more.Agent("abe")
	require.Equal(t, "2", got.Version, "the new one comes first")
	require.Same(t, r.Tools(), more.Tools())
	require.Equal(t, []string{"abe", "zoe"}, r.Agents(), "the old registry is as it was")
	got, _ = r.Agent("abe")
	require.Equal(t, "1", got.Version)
	require.NoError(t, more.AddFS(fstest.MapFS{"eve/agent.yaml": file("name: eve\nsystem: s\nmodel: {provider: demo}\n")}))
	require.Equal(t, []string{"ben"}, more.BuiltInGo())
	_, err = r.With(newer, newer)
	require.ErrorContains(t, err, "register agent abe: the name is taken")
	_, err = r.With(agent.Definition{Name: "No"})
	require.Error(t, err)
}

func TestAddRefuses(t *testing.T) {
	r := registry.Must(registry.New())
	require.ErrorContains(t, r.Add(agent.Definition{Name: "Bad Name"}), "register agent Bad Name")
	require.Empty(t, r.Agents())
	d, err := agent.Definition{Name: "a", System: "s", Model: agent.ModelSpec{Provider: "demo"},
		Output: agent.Output{Format: agent.OutputJSON, Schema: json.RawMessage(`{"type":"objekt"}`)}}.Resolve()
	require.NoError(t, err)
	require.ErrorContains(t, r.Add(d), "register agent a: output.schema: compile schema: not a valid JSON Schema: at /type")
	require.Empty(t, r.Agents())
	_, err = r.Read(fstest.MapFS{}, "gone/agent.yaml")
	require.ErrorContains(t, err, "gone/agent.yaml")
}

// An agent that names code which is not registered, or whose plugin refuses its configuration, is refused, in a file
// with its line, and the known code is listed.
func TestUnknownCodeIsRefused(t *testing.T) {
	policy := func(context.Context, hook.PolicyInput) ([]string, error) { return nil, nil }
	moody := func(config json.RawMessage) (hook.Plugin, error) {
		if string(config) != `{"mood":"good"}` {
			return hook.Plugin{}, errors.New("want a good mood")
		}
		return hook.Plugin{}, nil
	}
	r := registry.Must(registry.New())
	require.NoError(t, r.Hook(hook.Set{
		Version: "1", Policies: map[string]hook.Policy{"strict": policy, "lax": policy},
		Plugins: map[string]hook.Factory{"moody": moody, "none": nil},
	}))
	require.ErrorContains(t, r.Hook(hook.Set{}), "want it once")
	const (
		noPolicy  = `permission.policy: got "strikt", want a registered policy function: lax, strict`
		noBackend = `permission.backend: got "book", want a registered permission backend: there is none`
		noBuilder = `builder: got "x", want a registered context builder: there is none`
		noPlugin  = `: there is no plugin "ghost"; known: moody, none, permission, reminder, tool-policy`
	)
	const head = "name: a\nsystem: s\nmodel: {provider: demo, id: m}\n"
	for line, want := range map[string]string{
		"permission: {policy: strikt}": noPolicy, "permission: {backend: book}": noBackend, "builder: x": noBuilder,
		"plugins: [reminder, ghost]": "plugins[1]" + noPlugin, "plugins: [moody]": "plugins[0]: plugin moody: want a good mood",
		"plugins: [none]": "plugins[0]: plugin none: it panicked",
	} {
		_, err := r.Read(fstest.MapFS{"a/agent.yaml": file(head + line)}, "a/agent.yaml")
		require.ErrorContains(t, err, "a/agent.yaml:4: "+want)
	}
	const known = "plugins: [reminder, {name: moody, config: {mood: good}}]\npermission: {policy: lax}\n"
	require.NoError(t, r.AddFS(fstest.MapFS{"a/agent.yaml": file(head + known)}))
	d, ok := r.Agent("a")
	require.True(t, ok)
	good := json.RawMessage(`{"mood":"good"}`)
	require.Equal(t, []agent.PluginSpec{{Name: "reminder"}, {Name: "moody", Config: good}}, d.Plugins)

	inGo := *d
	inGo.Name, inGo.Plugins = "b", []agent.PluginSpec{{Name: "ghost"}}
	require.ErrorContains(t, r.Add(inGo), "register agent b: plugins[0]"+noPlugin)
	inGo.Plugins, inGo.Permission.Policy = d.Plugins, "strikt"
	require.ErrorContains(t, r.Add(inGo), "register agent b: "+noPolicy)
	inGo.Permission.Policy, inGo.Builder = "lax", "x"
	require.EqualError(t, r.Add(inGo), "register agent b: "+noBuilder)
	inGo.Builder = ""
	require.NoError(t, r.Add(inGo))
	inGo.System = "changed"
	d, _ = r.Agent("b")
	require.Equal(t, "s", d.System, "an agent is kept as it was when it was added")

	require.ErrorContains(t, r.Add(agent.Definition{Name: "c"}), "register agent c: want what its Resolve returns")
	inGo.Name, inGo.Tools = "d", []agent.ToolSpec{{
		Name: "pay", Kind: agent.KindInternal, Description: "Pays.", Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`),
	}}
	require.NoError(t, errors.Join(r.Check(), r.Add(inGo)))
	require.EqualError(t, r.Check(), "agent d: tool pay is none of NewRegistry's")
}

func TestNewRefusesTwoOfAName(t *testing.T) {
	_, err := registry.New(named("orders.get"), named("orders_get"))
	require.ErrorContains(t, err, "orders_get", "both are orders_get to a model")
	require.Panics(t, func() { registry.Must(registry.New(named("x"), named("x"))) })
}

// The mcp.lock beside the agents pins the tools of their MCP servers, those of agents in Go as well. A bad one is named.
func TestAddFSReadsTheLock(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	lock := func(servers string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(`{"servers":[` + servers + `]}`)}
	}
	files := fstest.MapFS{
		"desk/agent.yaml": {Data: []byte("name: desk\nsystem: S\nmodel: {provider: demo, id: x}\nmcp:\n" +
			"  - {name: files, url: \"https://files.example.com/mcp\"}\n  - {name: other, command: [other, x]}\n" +
			"  - {name: empty, command: [empty]}\n")},
		"mcp.lock": lock(`{"url":"https://files.example.com/mcp","tools":[{"name":"read","digest":"` + digest +
			`","description":"Read.","arguments":{"type":"object"}}]},{"command":["empty"],"tools":[]}`),
	}
	r := registry.Must(registry.New())
	require.NoError(t, r.AddFS(files))
	d, _ := r.Agent("desk")
	require.Equal(t, map[string]string{"read": digest}, d.MCP[0].Locked)
	require.Nil(t, d.MCP[1].Locked)
	require.NotNil(t, d.MCP[2].Locked)
	stored, err := json.Marshal(d.MCP[2])
	require.NoError(t, err)
	var again agent.MCPServer
	require.NoError(t, json.Unmarshal(stored, &again))
	require.NotNil(t, again.Locked, "a server that is locked without tools is not unknown")

	own := *d
	own.Name, own.MCP = "own", []agent.MCPServer{{Name: "web", URL: "https://files.example.com/mcp"}}
	require.NoError(t, r.Add(own))
	d, _ = r.Agent("own")
	require.Equal(t, map[string]string{"read": digest}, d.MCP[0].Locked)
	require.Equal(t, []string{"own"}, r.BuiltInGo())

	const server = `{"command":["a"],"tools":[]}`
	for servers, says := range map[string]string{
		`{"tools":[]}`:                                         "servers[0]: want either url or command",
		`{"url":"x","command":["a"],"tools":[]}`:               "servers[0]: want either url or command",
		server + "," + server:                                  "servers[1]: the server is there twice",
		`{"url":"x","tools":[{"name":"a","digest":"secret"}]}`: "servers[0].tools[0].digest: want 64 hex digits",
		`{"url":"x","tools":[{"name":"a","digest":"` + digest + `"},{"name":"a","digest":"` + digest + `"}]}`: "servers[0].tools[1].name: the tool is there twice",
		`{"url":"x","colour":1}`: "colour",
		`{`:                      "json at offset",
	} {
		files["mcp.lock"] = lock(servers)
		err := registry.Must(registry.New()).AddFS(files)
		require.ErrorContains(t, err, says, servers)
		require.ErrorContains(t, err, "mcp.lock")
		require.NotContains(t, err.Error(), "secret")
	}
}

// A document of OpenAPI is embedded with the agent that names it; one that is not says where it is looked for.
func TestAddFSReadsDocuments(t *testing.T) {
	const agentFile = "name: pets\nsystem: s\nmodel: {provider: demo, id: m}\n" +
		"tools: [{name: pets.get, kind: http, openapi: api.json, operation: getPet}]\n"
	document := file(`{"openapi":"3.0.0","info":{"title":"Pets","version":"1"},"servers":[{"url":"https://pets.example"}],` +
		`"paths":{"/pets/{id}":{"get":{"operationId":"getPet","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"A pet."}}}}}}`)
	r := registry.Must(registry.New())
	require.NoError(t, r.AddFS(fstest.MapFS{"pets/agent.yaml": file(agentFile), "pets/api.json": document}))
	d, ok := r.Agent("pets")
	require.True(t, ok)
	require.Equal(t, "https://pets.example/pets/{id}", d.Tools[0].HTTP.URL)

	for _, outside := range []string{"api.json", "../api.json", "/api.json"} {
		files := fstest.MapFS{"pets/agent.yaml": file(strings.Replace(agentFile, "api.json", outside, 1)), "api.json": document}
		r := registry.Must(registry.New())
		require.NoError(t, r.AddFS(files))
		require.ErrorContains(t, r.Check(), "pets/agent.yaml:4: tools[0].openapi: ", outside)
	}
}
