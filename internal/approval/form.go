package approval

import (
	"encoding/json"

	"github.com/countersign/countersign/internal/run"
)

// form is a request as it is written: args are always those that the call asked with, whatever people have made of them since; what an edit has put in
// their place is edited.
type form Approval

// MarshalJSON writes the stored bytes of arguments as they are.
func (a Approval) MarshalJSON() ([]byte, error) {
	f := form(a)
	if a.OriginalArgs != nil {
		f.Args, f.OriginalArgs = a.OriginalArgs, a.Args
	}
	return run.MarshalVerbatim(f)
}

// UnmarshalJSON reads what MarshalJSON writes, of this build or another: what it does not know, it leaves out. A stored request is read by decode,
// which leaves nothing out.
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
	if f.OriginalArgs != nil {
		a.Args, a.OriginalArgs = f.OriginalArgs, f.Args
	}
	return a
}
