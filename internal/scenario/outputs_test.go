package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/countersign/countersign/internal/hook"
)

// totals is the code that the agents of testdata/outputs name.
var totals = hook.Set{Outputs: map[string]hook.CheckOutput{
	"totals.match": func(_ context.Context, in hook.OutputInput) (string, error) {
		var out struct{ Total, Net, Tax int }
		if err := json.Unmarshal(in.Output, &out); err != nil {
			return "", err
		}
		if out.Net+out.Tax != out.Total {
			return fmt.Sprintf("for %s: net %d and tax %d are not %d", in.Agent, out.Net, out.Tax, out.Total), nil
		}
		return "", nil
	},
	"totals.broken": func(context.Context, hook.OutputInput) (string, error) { return "", errors.New("there is no ledger") },
	"totals.panics": func(context.Context, hook.OutputInput) (string, error) { panic("a secret") },
}}

// TestOutputs runs the scenarios of agents whose outputs are checked by code.
func TestOutputs(t *testing.T) {
	runFolder(t, "outputs", totals, "want a registered output check: there is none")
}
