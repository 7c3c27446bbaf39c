package catalog_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/catalog"
)

// listed is agents in a given order.
type listed []agent.Definition

func (l listed) Agent(name string) (*agent.Definition, bool) {
	for _, d := range l {
		if d.Name == name {
			return &d, true
		}
	}
	return nil, false
}

func (l listed) Agents() (names []string) {
	for _, d := range l {
		names = append(names, d.Name)
	}
	return names
}

func definition(t *testing.T, name string) agent.Definition {
	t.Helper()
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	d.Name, d.System = name, "You <help> & {{.Date}}."
	d.Model.Provider, d.Model.ID = "bedrock", "m"
	d.Tools = []agent.ToolSpec{{
		Name: "orders.get", Kind: agent.KindInternal, Effect: agent.EffectRead, Description: "Looks.",
		Schema: json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"^<$","maximum":12345678901234567890}}}`),
	}}
	return d
}

// A definition comes back as it was, to the byte: its digest is what runs are pinned to.
func TestRoundTrip(t *testing.T) {
	in := listed{definition(t, "b"), definition(t, "a")}
	text, err := catalog.Text(in)
	require.NoError(t, err)
	c, err := catalog.Read(text)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, c.Agents())
	for _, name := range c.Agents() {
		was, _ := in.Agent(name)
		is, ok := c.Agent(name)
		require.True(t, ok)
		want, err := json.Marshal(was)
		require.NoError(t, err)
		got, err := json.Marshal(is)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
	again, err := catalog.Text(c)
	require.NoError(t, err)
	require.Equal(t, string(text), string(again), "the order they come in is not seen")
	_, ok := c.Agent("c")
	require.False(t, ok)

	none, err := catalog.Text(listed{})
	require.NoError(t, err)
	empty, err := catalog.Read(none)
	require.NoError(t, err)
	require.Empty(t, empty.Agents())
}

func TestReadRefuses(t *testing.T) {
	text, err := catalog.Text(listed{definition(t, "a")})
	require.NoError(t, err)
	one := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(text)), "["), "]")
	for want, text := range map[string]string{
		"unexpected end":            "",
		"cannot unmarshal object":   "{}",
		"[0]: want an agent":        "[null]",
		"[1]: a: the name is taken": "[" + one + "," + one + "]",
		`unknown field "colour"`:    strings.Replace(string(text), `"name"`, `"colour": 1, "name"`, 1),
		"invalid character '['":     string(text) + "[]",
	} {
		_, err := catalog.Read([]byte(text))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "read agents")
	}
	require.Panics(t, func() { catalog.Must("") })
}

// What Check refuses is refused when the text is written, so that no function has to look at its start.
func TestTextRefuses(t *testing.T) {
	d := definition(t, "a")
	d.Model.Provider = ""
	_, err := catalog.Text(listed{d})
	require.EqualError(t, err, "write agents: a: model.provider: got nothing, want a model")
}

// What is packed is what was written, and nothing else is unpacked.
func TestPack(t *testing.T) {
	text := []byte("[\n  {\"name\": \"a\", \"system\": \"<b>\\u2028\"}\n]\n")
	packed, err := catalog.Pack(text)
	require.NoError(t, err)
	again, err := catalog.Pack(text)
	require.NoError(t, err)
	require.Equal(t, packed, again)
	c, err := catalog.Unpack(string(packed))
	require.NoError(t, err)
	direct, err := catalog.Read(text)
	require.NoError(t, err)
	want, _ := direct.Agent("a")
	got, ok := c.Agent("a")
	require.True(t, ok)
	require.Equal(t, want, got)
	for _, bad := range []string{"", "[]", string(packed[:len(packed)/2])} {
		_, err := catalog.Unpack(bad)
		require.Error(t, err, "%q", bad)
	}
	_, err = catalog.Pack([]byte("["))
	require.Error(t, err)
}
