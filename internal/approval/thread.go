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
	"github.com/countersign/countersign/internal/run"
)

// The bounds of a thread. MaxSpoken leaves room in the request's item for what is decided about it.
const (
	MaxRemarks      = 50
	MaxRemarkChars  = 4000      // characters of a remark
	maxRequestBytes = 256 << 10 // bytes of a request with its thread
)

// The errors of Ask and Reply beside those of Decide.
var (
	ErrRemark     = fmt.Errorf("a remark has 1 to %d characters", MaxRemarkChars)
	ErrThreadFull = errors.New("the request takes no more remarks")
)

// RemarkInput is what somebody says of a request without deciding it. By comes from what authenticated the person.
type RemarkInput struct {
	Tenant, ID string
	Text       string // 1 to MaxRemark characters
	By         policy.Principal
	Via        Via // for the record
}

// AskQuestion appends a question of somebody who could decide the request; it decides nothing, and the request goes on waiting and expires as before
// (A15). The same words of the same person again, with none between, are said once.
//
// Errors: ErrNotFound; ErrForbidden; ErrRemark; ErrThreadFull; ErrExpired; *DecidedError where it waits no more; store.ErrConflict where others
// keep writing. An error of any other kind is uncertain, and the same may be said again.
func (d *Desk) AskQuestion(ctx context.Context, w RemarkInput) (Approval, error) {
	return d.addRemark(ctx, w, false)
}

// ReplyToQuestion appends an answer: of somebody who could decide the request, or of a person for whom its run acts. Otherwise it is like Ask.
//
// A thread is the request's own. Where the request is asked anew, as after a change of policy, the new one has none.
func (d *Desk) ReplyToQuestion(ctx context.Context, w RemarkInput) (Approval, error) {
	return d.addRemark(ctx, w, true)
}

func (d *Desk) addRemark(ctx context.Context, w RemarkInput, reply bool) (Approval, error) {
	if n := utf8.RuneCountInString(w.Text); strings.TrimSpace(w.Text) == "" || n > MaxRemarkChars {
		return Approval{}, fmt.Errorf("say something of approval %s: got %d: %w", w.ID, n, ErrRemark)
	}
	a, _, err := UpdatePending(ctx, d.Table, w.Tenant, w.ID, func(a *Approval) (bool, error) {
		now := d.Clock.Now().UTC().Truncate(time.Millisecond)
		if !a.canRemark(w.By, reply, now) {
			return false, fmt.Errorf("say something of approval %s as %s: %w", a.ID, w.By.ID, ErrForbidden)
		}
		return a.appendRemark(w, now)
	})
	var decided *DecidedError
	switch {
	case errors.As(err, &decided) && decided.Approval.Status == Expired:
		return Approval{}, fmt.Errorf("say something of approval %s: %w", w.ID, ErrExpired)
	case err != nil:
		return Approval{}, err
	case d.OnRemark != nil:
		d.OnRemark(ctx, a)
	}
	return a, nil
}

// canRemark says whether somebody may say something of the request: who could decide it, and to reply those for whom the
// run acts.
func (a *Approval) canRemark(by policy.Principal, reply bool, now time.Time) bool {
	return reply && by.ID != "" && slices.Contains(a.Requesters, by.ID) || a.CanDecide(by, now)
}

// appendRemark appends the words to the thread; false where they are there.
func (a *Approval) appendRemark(w RemarkInput, now time.Time) (bool, error) {
	switch n := len(a.Thread); {
	case !now.Before(a.ExpiresAt):
		return false, fmt.Errorf("say something of approval %s: %w", a.ID, ErrExpired)
	case n > 0 && a.Thread[n-1].By == w.By.ID && a.Thread[n-1].Text == w.Text: // whoever got no answer says it again
		return false, nil
	case n >= MaxRemarks:
		return false, fmt.Errorf("say something of approval %s: it has %d: %w", a.ID, n, ErrThreadFull)
	}
	a.Thread = append(slices.Clip(a.Thread), Remark{By: w.By.ID, At: now, Text: w.Text, Via: w.Via})
	body, err := run.MarshalVerbatim(a)
	if err == nil && len(body) > maxRequestBytes {
		err = fmt.Errorf("say something of approval %s: it would have %d bytes, at most %d: %w", a.ID, len(body), maxRequestBytes, ErrThreadFull)
	}
	return true, err
}

// RecordUnmasking records that a person is shown what is masked of a request; it is called before they are. The first time of each person and way is
// kept.
//
// Errors: ErrNotFound; ErrForbidden; *DecidedError where the request waits no more; store.ErrConflict where others keep writing.
func (d *Desk) RecordUnmasking(ctx context.Context, tenant, id string, by policy.Principal, via Via) error {
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	_, _, err := UpdatePending(ctx, d.Table, tenant, id, func(a *Approval) (bool, error) {
		if !a.CanDecide(by, now) {
			return false, fmt.Errorf("uncover approval %s as %s: %w", a.ID, by.ID, ErrForbidden)
		}
		if slices.ContainsFunc(a.Unmaskings, func(u Unmasking) bool { return u.By == by.ID && u.Via == via }) {
			return false, nil
		}
		a.Unmaskings = append(slices.Clip(a.Unmaskings), Unmasking{By: by.ID, At: now, Via: via})
		return true, nil
	})
	return err
}
