package support_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/countersign/countersign/internal/scaffold/agents/support"
	"github.com/countersign/countersign/pkg/agent"
)

// The same call sends once, however often it is made, and the tool knows whether it has.
func TestOneCallSendsOnce(t *testing.T) {
	dir := t.TempDir()
	send, err := support.SendMail(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := json.RawMessage(`{"to": "ana@example.com", "subject": "Your lamp", "text": "A new one is on its way."}`)
	c := agent.Call{Run: "r1", ID: "c1", Key: "r1/c1", Args: args}
	for want := range 2 {
		outcome, _, err := send.(agent.Reconciler).Reconcile(t.Context(), c)
		if err != nil || (outcome == agent.OutcomeDone) != (want == 1) {
			t.Errorf("after %d attempts: got %v, %v", want, outcome, err)
		}
		if r, err := send.Call(t.Context(), c); err != nil || r.IsError {
			t.Errorf("got %v, %v", r, err)
		}
	}
	if mails, err := os.ReadDir(dir); err != nil || len(mails) != 1 {
		t.Errorf("got %v, %v, want one mail", mails, err)
	}
}
