package registry_test

import (
	"encoding/json"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/registry"
)

// An agent's plugins are those of the deployment, whether it comes from a file or from Go, and each of them has its say about its
// configuration when the agent is registered.
func TestAgentsNamePlugins(t *testing.T) {
	moody := func(config json.RawMessage) (hook.Plugin, error) {
		if string(config) != `{"mood":"good"}` {
			return hook.Plugin{}, errors.New("want a good mood")
		}
		return hook.Plugin{}, nil
	}
	r := registry.Must(registry.New())
	require.NoError(t, r.Hook(hook.Set{Version: "h1", Plugins: map[string]hook.Factory{"moody": moody}}))
	file := func(plugins string) fstest.MapFS {
		return fstest.MapFS{"a/agent.yaml": {Data: []byte("name: a\nsystem: s\nmodel: {provider: openai, id: m}\nplugins: " + plugins + "\n")}}
	}
	_, err := r.Read(file("[reminder, ghost]"), "a/agent.yaml")
	require.ErrorContains(t, err, `a/agent.yaml:4: plugins[1]: there is no plugin "ghost"; known: moody, permission, reminder, tool-policy`)
	_, err = r.Read(file("[moody]"), "a/agent.yaml")
	require.ErrorContains(t, err, "plugins[0]: plugin moody: want a good mood")
	require.NoError(t, r.AddFS(file("[reminder, {name: moody, config: {mood: good}}]")))
	d, ok := r.Agent("a")
	require.True(t, ok)
	require.Equal(t, []agent.PluginSpec{{Name: "reminder"}, {Name: "moody", Config: json.RawMessage(`{"mood":"good"}`)}}, d.Plugins)

	inGo := *d
	inGo.Name, inGo.Plugins = "b", []agent.PluginSpec{{Name: "ghost"}}
	require.ErrorContains(t, r.Add(inGo), `register agent b: plugins[0]: there is no plugin "ghost"`)
	inGo.Plugins = d.Plugins
	require.NoError(t, r.Add(inGo))
}
