package incident

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
)

// OrderPlugin is the name of the plugin.
const OrderPlugin = "work-order"

// Order is its configuration: the tools that must have succeeded in the run before one may run, by original names.
type Order map[string][]string

// NewOrder is the plugin: it blocks a call that comes too early, and the model reads what it has left out. Nobody is
// asked about such a call. A call that people have been asked about came at its time, and is let through.
func NewOrder(config json.RawMessage) (agent.Plugin, error) {
	var order Order
	if err := json.Unmarshal(config, &order); err != nil || len(order) == 0 {
		return agent.Plugin{}, fmt.Errorf("want an object of lists of tools, as {%q: [%q]}", "deploys.rollback",
			"deploys.list")
	}
	return agent.Plugin{BeforeTool: func(_ context.Context, m *agent.BeforeTool) error {
		if missing := order.missing(m.Call().Tool, m.Run().Calls()); len(missing) > 0 && !m.Resumed() {
			m.Block("Look first: call " + strings.Join(missing, " and ") + " before this.")
		}
		return nil
	}}, nil
}

// missing are the model-facing names of what must come before a tool and has not succeeded.
func (o Order) missing(tool string, calls []agent.CallState) (names []string) {
	for _, first := range o[tool] {
		if !slices.ContainsFunc(calls,
			func(c agent.CallState) bool { return c.Tool == first && c.Status == agent.StatusSucceeded }) {
			names = append(names, agent.ModelName(first))
		}
	}
	return names
}
