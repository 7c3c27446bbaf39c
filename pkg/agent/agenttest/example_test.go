package agenttest_test

import (
	"testing"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/agenttest"
)

// t stands for the argument of the test.
var t *testing.T

// The scenarios beside a program's agents are tests of the package agents.
func ExampleScenarios() {
	agenttest.Scenarios(t, agents.Registry(), "*/scenarios/*.txtar")
}
