package approval

import (
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// form is a request as it is written: args are always those that the call asked with, whatever people have made of them since; what an edit has put in
// their place is edited.
type form Approval

// MarshalJSON writes the stored bytes of arguments as they are.
func (a Approval) MarshalJSON() ([]byte, error) {
	f := form(a)
	if a.Asked != nil {
		f.Args, f.Asked = a.Asked, a.Args
	}
	return agent.MarshalVerbatim(f)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Approval) UnmarshalJSON(data []byte) error {
	var f form
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*a = f.approval()
	return nil
}

func (f form) approval() Approval {
	a := Approval(f)
	if f.Asked != nil {
		a.Args, a.Asked = f.Asked, f.Args
	}
	return a
}

// readForm reads a request as it is stored. One with anything that this build does not know is an agent.NewerError: whoever left it out would show and decide
// something else.
func readForm(it store.Item) (Approval, error) {
	var f form
	if err := agent.ReadStored("approval", it.Body, &f); err != nil {
		return Approval{}, err
	}
	if status := Status(it.Attrs["status"].String()); !status.Valid() {
		return Approval{}, &agent.NewerError{What: "approval: status", Found: fmt.Sprintf("%q", agent.Bounded(string(status))), Knows: "pending, approved, denied, expired, cancelled, voided"}
	}
	return f.approval(), nil
}
