package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/policy"
)

// The bounds of a thread. maxRequestBytes leaves room in the request's item for the decisions, and maxPendingBytes for
// a denial, which no approver's note or edit may keep out.
const (
	MaxRemarks      = 50
	MaxRemarkChars  = 4000      // characters of a remark
	maxRequestBytes = 296 << 10 // bytes of a request with its thread
	maxPendingBytes = 368 << 10 // bytes of a request whose quorum takes more people
	maxDecidedBytes = 392 << 10 // bytes of a decided request; the rest of its item is what conditions compare
)

// The errors of AddRemark, besides those of Decide.
var (
	ErrRemark     = fmt.Errorf("a remark has 1 to %d characters", MaxRemarkChars)
	ErrThreadFull = errors.New("the request takes no more remarks")
)

// RemarkInput is a person's remark on a request. By comes from what authenticated the person.
type RemarkInput struct {
	Tenant, ID string
	Text       string // 1 to MaxRemarkChars characters
	Reply      bool   // an answer, which a person for whom the run acts may give as well; else a question of an approver
	By         policy.Principal
	Via        Via // for the record
}

// AddRemark appends a remark to the request's thread. It decides nothing: the request stays pending and expires as
// before (A15). If the newest remark is the same text of the same person, nothing is added. The thread belongs to one
// request: a request that replaces it, as after a change of policy, has an empty thread.
//
// Errors: ErrNotFound; ErrForbidden; ErrRemark; ErrThreadFull; ErrExpired; *DecidedError if the request is not pending;
// store.ErrConflict if others keep writing. After any other error the outcome is unknown, and the caller may repeat the
// call.
func (d *Desk) AddRemark(ctx context.Context, in RemarkInput) (Approval, error) {
	if n := utf8.RuneCountInString(in.Text); strings.TrimSpace(in.Text) == "" || n > MaxRemarkChars {
		return Approval{}, fmt.Errorf("add a remark to approval %s: got %d: %w", in.ID, n, ErrRemark)
	}
	a, _, err := UpdatePending(ctx, d.Table, in.Tenant, in.ID, func(a *Approval) (bool, error) {
		now := d.Clock.Now().UTC().Truncate(time.Millisecond)
		replies := in.Reply && in.By.ID != "" && slices.Contains(a.Requesters, in.By.ID)
		switch n := len(a.Thread); {
		case !a.CanDecide(in.By, now) && !replies:
			return false, fmt.Errorf("add a remark to approval %s as %s: %w", a.ID, in.By.ID, ErrForbidden)
		case !now.Before(a.ExpiresAt):
			return false, fmt.Errorf("add a remark to approval %s: %w", a.ID, ErrExpired)
		case n > 0 && a.Thread[n-1].By == in.By.ID && a.Thread[n-1].Text == in.Text:
			return false, nil // a client that got no answer sends it again
		case n >= MaxRemarks:
			return false, fmt.Errorf("add a remark to approval %s: it has %d: %w", a.ID, n, ErrThreadFull)
		}
		a.Thread = append(slices.Clip(a.Thread), Remark{By: in.By.ID, At: now, Text: in.Text, Via: in.Via})
		op, err := putOp(*a)
		if n := len(op.Item.Body); n > maxRequestBytes {
			err = fmt.Errorf("add a remark to approval %s: it would have %d bytes, at most %d: %w", a.ID, n, maxRequestBytes,
				ErrThreadFull)
		}
		return true, err
	})
	var decided *DecidedError
	switch {
	case errors.As(err, &decided) && decided.Approval.Status == Expired:
		return Approval{}, fmt.Errorf("add a remark to approval %s: %w", in.ID, ErrExpired)
	case err != nil:
		return Approval{}, err
	}
	d.notifyChange(ctx, a)
	return a, nil
}

// RecordUnmasking records that a person is shown the masked values of a request. It must be called before they are
// shown. The first time of each person and channel is kept.
//
// Errors: ErrNotFound; ErrForbidden; *DecidedError if the request is not pending; store.ErrConflict if others keep
// writing.
func (d *Desk) RecordUnmasking(ctx context.Context, tenant, id string, by policy.Principal, via Via) error {
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	_, _, err := UpdatePending(ctx, d.Table, tenant, id, func(a *Approval) (bool, error) {
		if !a.CanUnmask(by, now) {
			return false, fmt.Errorf("unmask approval %s as %s: %w", a.ID, by.ID, ErrForbidden)
		}
		if slices.ContainsFunc(a.Unmaskings, func(u Unmasking) bool { return u.By == by.ID && u.Via == via }) {
			return false, nil
		}
		a.Unmaskings = append(slices.Clip(a.Unmaskings), Unmasking{By: by.ID, At: now, Via: via})
		return true, nil
	})
	return err
}
