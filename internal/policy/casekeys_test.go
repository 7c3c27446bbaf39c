package policy

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestCaseKeys(t *testing.T) {
	for args, want := range map[string]bool{
		`{}`: false, `{"a":1,"b":{"a":1}}`: false, `[{"a":1},{"A":1}]`: false, `{"a":"A"}`: false,
		`{"a":1,"A":1}`: true, `{"x":[1,{"ab":1,"aB":2}]}`: true, `{"k":1,"` + "\u212a" + `":2}`: true, `{"s":1,"` + "\u017f" + `":2}`: true,
		`{"straße":1,"STRASSE":2}`: false, `{"a":1,"\u0041":2}`: true,
	} {
		require.Equal(t, want, hasCaseKeys(json.RawMessage(args)), args)
	}
}

// Arguments are repaired only if the provider says why it stopped, and that no limit cut them.
func TestRepairsNothingThatMayBeCut(t *testing.T) {
	c := agent.ReplyCall{Input: json.RawMessage(`{"amount": 12`)}
	for _, r := range []agent.Reply{{}, {StopReason: "length", Truncated: true}} {
		require.False(t, RepairCall(agent.ModelSpec{Repair: agent.RepairOn}, r, c).Repaired)
	}
	require.True(t, RepairCall(agent.ModelSpec{Repair: agent.RepairOn}, agent.Reply{StopReason: "tool_calls"}, c).Repaired)
}
