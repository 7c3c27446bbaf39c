package sampletest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/samtest"
)

// rule is an EventBridge rule of the template with the parameters' defaults, as far as this template uses the pattern language: lists of
// values, prefix, and exists, which looks at leaves alone.
type rule struct {
	pattern  *samtest.Node
	paths    *samtest.Node
	template string
	defaults func(*samtest.Node) string
}

func newRule(t *testing.T, id string) rule {
	t.Helper()
	p, err := samtest.Read(root, nil)
	require.NoError(t, err)
	properties := p.Template.Get("Resources", id, "Properties")
	require.NotNil(t, properties, id)
	defaults := func(n *samtest.Node) string {
		if name, arg := n.Call(); name == "Ref" {
			if d := p.Template.Get("Parameters", arg.String(), "Default"); d != nil {
				return d.String()
			}
			if arg.String() == "AgentStateMachine" {
				return "arn:aws:states:eu-central-1:123456789012:stateMachine:countersign-dev-agent"
			}
		}
		return n.String()
	}
	transformer := properties.Get("Targets").Each()[0].Get("InputTransformer")
	template := transformer.Get("InputTemplate").Short()
	for _, e := range p.Template.Get("Parameters").Entries {
		template = strings.ReplaceAll(template, "${"+e.Key+"}", e.Value.Get("Default").String())
	}
	return rule{properties.Get("EventPattern"), transformer.Get("InputPathsMap"), template, defaults}
}

func (r rule) matches(event map[string]any) bool { return r.match(r.pattern, event) }

func (r rule) match(pattern *samtest.Node, event map[string]any) bool {
	for _, e := range pattern.Entries {
		value, there := event[e.Key]
		if e.Value.Kind == samtest.Map {
			inner, ok := value.(map[string]any)
			if !ok || !r.match(e.Value, inner) {
				return false
			}
			continue
		}
		if !r.oneOf(e.Value, value, there) {
			return false
		}
	}
	return true
}

func (r rule) oneOf(wanted *samtest.Node, value any, there bool) bool {
	_, object := value.(map[string]any)
	_, list := value.([]any)
	for _, want := range wanted.Each() {
		if exists := want.Get("exists"); exists != nil {
			if leaf := there && !object && !list; leaf == (exists.String() == "true") {
				return true
			}
			continue
		}
		text, ok := value.(string)
		if prefix := want.Get("prefix"); prefix != nil {
			if ok && strings.HasPrefix(text, r.defaults(prefix)) {
				return true
			}
			continue
		}
		if ok && text == r.defaults(want) {
			return true
		}
	}
	return false
}

var variable = regexp.MustCompile(`<(\w+)>`)

// transform is the input template with each variable's JSON in its place. A path that leads nowhere fails the test: what EventBridge
// makes of one is not said clearly anywhere.
func (r rule) transform(t *testing.T, event map[string]any) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(r.template, func(m string) string {
		path := r.paths.Get(strings.Trim(m, "<>"))
		require.NotNil(t, path, m)
		var value any = event
		for _, key := range strings.Split(strings.TrimPrefix(path.String(), "$."), ".") {
			object, ok := value.(map[string]any)
			require.True(t, ok && object[key] != nil, "%s: %s: not in the event", m, path.String())
			value = object[key]
		}
		b, err := json.Marshal(value)
		require.NoError(t, err)
		return string(b)
	})
}
