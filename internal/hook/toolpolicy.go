package hook

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/agent"
)

// toolPolicyConfig is the configuration of the plugin tool-policy: patterns over original names, in which '*' stands
// for any run of characters.
type toolPolicyConfig struct {
	Allow   []string `json:"allow"`   // these alone; none = all
	Exclude []string `json:"exclude"` // not these, whatever is allowed
}

// toolPolicy takes tools out of every request, and blocks their calls should they be made all the same (presets 10).
func toolPolicy(config json.RawMessage) (Plugin, error) {
	var c toolPolicyConfig
	if err := decode(config, &c); err != nil {
		return Plugin{}, err
	}
	return Plugin{
		BeforeInference: func(_ context.Context, m *BeforeInference) error {
			if len(c.Allow) > 0 {
				m.IncludeOnly()
			}
			for _, t := range m.Agent().Tools {
				if matchesAny(c.Allow, t.Name) {
					m.IncludeOnly(t.Name)
				}
				if matchesAny(c.Exclude, t.Name) {
					m.Exclude(t.Name)
				}
			}
			return nil
		},
		BeforeTool: func(_ context.Context, m *BeforeTool) error {
			if name := m.Call().Tool; matchesAny(c.Exclude, name) || len(c.Allow) > 0 && !matchesAny(c.Allow, name) {
				m.Block("the agent's tool policy does not allow it")
			}
			return nil
		},
	}, nil
}

func matchesAny(patterns []string, tool string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return agent.MatchTool(p, tool) })
}
