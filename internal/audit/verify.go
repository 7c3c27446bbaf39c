package audit

import (
	"context"
	"encoding/json"
	"fmt"
)

// BreakError says where a chain is broken and how. It quotes no record.
type BreakError struct {
	Line    int64  // of the text, from 1; 0 = the chain as a whole
	Problem string // such as "line 7 has been changed"
}

func (e *BreakError) Error() string {
	if e.Line == 0 {
		return e.Problem
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Problem)
}

// Verifier recomputes a chain, line by line. The zero value verifies one from its first line on; Last of another is
// where a part of one begins. Not safe for concurrent use.
type Verifier struct {
	Tenant string // "" = the first line says
	Last   Head   // the newest line so far. With a sequence and no hash, that line is known by its place alone

	Count int64 // lines so far
	seen  map[string]bool
	asked map[string]bool // by the ids of records: requests that have to be on record, and whether they are
}

// ExpectRequest has End look for the record of a request that was there before the chain was read: a chain that was
// emptied, or cut off and gone on with, has it no more.
func (v *Verifier) ExpectRequest(approval string) {
	if v.asked == nil {
		v.asked = map[string]bool{}
	}
	v.asked[requestedID(approval)] = false
}

// requestedID is the id of the record that a request was made.
func requestedID(approval string) string { return approval + "/requested" }

// Expect has End look for a line of that hash: one that was noted down earlier, where no writer of the table could
// change it.
func (v *Verifier) Expect(hash string) {
	if v.seen == nil {
		v.seen = map[string]bool{}
	}
	v.seen[hash] = v.seen[hash] || v.Last.Hash == hash
}

// Add takes the next line, as it is stored or exported. Its error is a *BreakError; then the chain is not to be trusted
// from this line on.
func (v *Verifier) Add(text []byte) error {
	at := v.Count + 1
	l, err := ParseLine(text)
	if err != nil {
		return &BreakError{at, fmt.Sprintf("changed: %v", err)}
	}
	if v.Tenant == "" {
		v.Tenant = l.Tenant
	}
	sum, err := l.sum()
	switch {
	case err != nil || sum != l.Hash:
		return &BreakError{at, fmt.Sprintf("changed: entry %d does not have the hash that it says", l.Seq)}
	case l.Tenant != v.Tenant:
		return &BreakError{at, fmt.Sprintf("foreign: entry %d is of another tenant's chain", l.Seq)}
	case l.Seq > v.Last.Seq+1:
		return &BreakError{at, fmt.Sprintf("gap: entry %d is not there, %d follows", v.Last.Seq+1, l.Seq)}
	case l.Seq <= v.Last.Seq:
		return &BreakError{at, fmt.Sprintf("order: entry %d stands behind entry %d", l.Seq, v.Last.Seq)}
	case l.Prev != v.Last.Hash && (v.Last.Hash != "" || v.Last.Seq == 0):
		return &BreakError{at, fmt.Sprintf("rewritten: entry %d follows another entry %d than the one that is there", l.Seq, v.Last.Seq)}
	}
	v.Last, v.Count = Head{Seq: l.Seq, Hash: l.Hash}, at
	if _, wanted := v.seen[l.Hash]; wanted {
		v.seen[l.Hash] = true
	}
	var of struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(l.Record, &of) == nil && v.asked != nil { // ParseLine has read it
		if _, wanted := v.asked[of.ID]; wanted {
			v.asked[of.ID] = true
		}
	}
	return nil
}

// End says whether all lines that were expected have come. Its error is a *BreakError.
func (v *Verifier) End() error {
	for hash, seen := range v.seen {
		if !seen {
			return &BreakError{0, fmt.Sprintf("truncated or rewritten: no entry up to %d has the hash %.64q", v.Last.Seq, hash)}
		}
	}
	missing := 0
	for _, there := range v.asked {
		if !there {
			missing++
		}
	}
	if missing > 0 {
		return &BreakError{0, fmt.Sprintf("truncated or overwritten: of %d requests that are there, %d are in no entry up to %d", len(v.asked), missing, v.Last.Seq)}
	}
	return nil
}

// Verify recomputes a tenant's chain as it is stored, its head included, and looks for the lines of these hashes. Its
// error is a *BreakError, or of the table. Others may write meanwhile.
func (l *Log) Verify(ctx context.Context, tenant string, expect ...string) (Verifier, error) {
	v := Verifier{Tenant: tenant}
	for _, hash := range expect {
		v.Expect(hash)
	}
	head, err := l.Head(ctx, tenant)
	if err != nil {
		return v, err
	}
	for {
		lines, err := l.Lines(ctx, tenant, v.Last.Seq, verifyPage)
		if err != nil {
			return v, err
		}
		for _, line := range lines {
			if err := v.Add(line); err != nil {
				return v, err
			}
			if err := v.Fits(head); err != nil {
				return v, err
			}
		}
		if len(lines) < verifyPage {
			break
		}
	}
	if newest, err := l.Head(ctx, tenant); err != nil {
		return v, err
	} else if err := v.EndsAt(head, newest); err != nil {
		return v, err
	}
	return v, v.End()
}

// Fits holds a head against the newest line, where it is the head of that one. Its error is a *BreakError.
func (v *Verifier) Fits(head Head) error {
	if v.Last.Seq == head.Seq && v.Last.Hash != head.Hash {
		return &BreakError{v.Count, fmt.Sprintf("rewritten: entry %d is not the one that the head says", head.Seq)}
	}
	return nil
}

// EndsAt holds the chain against the heads that were read before it and after it: there is every line of the one, and
// none behind the other. Its error is a *BreakError.
func (v *Verifier) EndsAt(before, after Head) error {
	switch {
	case v.Last.Seq < before.Seq:
		return &BreakError{0, fmt.Sprintf("truncated: the head is entry %d, and the last one that is there %d", before.Seq, v.Last.Seq)}
	case v.Last.Seq > after.Seq:
		return &BreakError{0, fmt.Sprintf("changed: the head is entry %d, and there are more, up to %d", after.Seq, v.Last.Seq)}
	case before.Seq == 0 && before.Hash != "":
		return &BreakError{0, "changed: the head is of no entry and has a hash"}
	}
	return nil
}

const verifyPage = 500
