package tool

import "fmt"

// LostError is the error of a call that was sent and whose answer did not come, or could not be read: whoever carries
// it out may have done it. Where doing it twice is one time too many, nobody can say what became of it. A call that was
// surely not sent, or surely refused, is an error of another type.
type LostError struct{ Err error }

func (e *LostError) Error() string { return fmt.Sprintf("the answer was lost: %v", e.Err) }

func (e *LostError) Unwrap() error { return e.Err }

// ChangedError is the error of a call that was not sent, because the tool is not, or is no longer, what the run is
// pinned to.
type ChangedError struct {
	Server, Tool string // the server's name in the definition, and its own name of the tool
	Want         string // the digest the run is pinned to
	Got          string // the digest of what the server says now; "" = it has no such tool
}

func (e *ChangedError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("the server %s no longer has the tool %s; the call was not made", e.Server, e.Tool)
	}
	return fmt.Sprintf("the server %s has changed its definition of the tool %s since the run began; the call was not made", e.Server, e.Tool)
}
