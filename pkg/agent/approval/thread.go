package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// The bounds of a thread. MaxSpoken leaves room in the request's item for what is decided about it.
const (
	MaxRemarks = 50
	MaxRemark  = 4000      // characters of a remark
	maxSpoken  = 256 << 10 // bytes of a request with its thread
)

// The errors of Ask and Reply beside those of Decide.
var (
	ErrRemark     = fmt.Errorf("a remark has 1 to %d characters", MaxRemark)
	ErrThreadFull = errors.New("the request takes no more remarks")
)

// Word is what somebody says of a request without deciding it. By comes from what authenticated the person.
type Word struct {
	Tenant, ID string
	Text       string // 1 to MaxRemark characters
	By         agent.Principal
	Via        Via // for the record
}

// Ask appends a question of somebody who could decide the request; it decides nothing, and the request goes on waiting and expires as before
// (A15). The same words of the same person again, with none between, are said once.
//
// Errors: ErrNotFound; ErrForbidden; ErrRemark; ErrThreadFull; ErrExpired; *DecidedError where it waits no more; store.ErrConflict where others
// keep writing. An error of any other kind is uncertain, and the same may be said again.
func (d *Desk) Ask(ctx context.Context, w Word) (Approval, error) { return d.say(ctx, w, false) }

// Reply appends an answer: of somebody who could decide the request, or of a person for whom its run acts. Otherwise it is like Ask.
//
// A thread is the request's own. Where the request is asked anew, as after a change of policy, the new one has none.
func (d *Desk) Reply(ctx context.Context, w Word) (Approval, error) { return d.say(ctx, w, true) }

func (d *Desk) say(ctx context.Context, w Word, reply bool) (Approval, error) {
	if n := utf8.RuneCountInString(w.Text); strings.TrimSpace(w.Text) == "" || n > MaxRemark {
		return Approval{}, fmt.Errorf("say something of approval %s: got %d: %w", w.ID, n, ErrRemark)
	}
	for range maxRaces {
		a, err := Get(ctx, d.Table, w.Tenant, w.ID)
		if err != nil {
			return Approval{}, err
		}
		if err := d.mayTalk(ctx, a, w, reply); err != nil {
			return Approval{}, err
		}
		said, again, err := d.remark(ctx, a, w)
		if again {
			continue
		}
		if err == nil && d.Said != nil {
			d.Said(ctx, said)
		}
		return said, err
	}
	return Approval{}, fmt.Errorf("say something of approval %s: %w", w.ID, store.ErrConflict)
}

// mayTalk says who may say something of a request: who could decide it, for whomever, and to reply those for whom the run acts.
func (d *Desk) mayTalk(ctx context.Context, a Approval, w Word, reply bool) error {
	if reply && w.By.ID != "" && slices.Contains(a.Requesters, w.By.ID) {
		return nil
	}
	all, err := d.actsAs(ctx, w.Tenant, w.By)
	if err != nil {
		return fmt.Errorf("say something of approval %s: %w", a.ID, err)
	}
	if slices.ContainsFunc(all, func(p agent.Principal) bool { return agent.MayDecideEach(p, a.Approvers, a.Above) }) {
		return nil
	}
	return fmt.Errorf("say something of approval %s as %s: %w", a.ID, w.By.ID, ErrForbidden)
}

// actsAs is by, and after them everybody who has let them decide meanwhile.
func (d *Desk) actsAs(ctx context.Context, tenant string, by agent.Principal) ([]agent.Principal, error) {
	if d.Duties == nil {
		return []agent.Principal{by}, nil
	}
	others, err := d.Duties(ctx, tenant, by, d.Clock.Now())
	return append([]agent.Principal{by}, others...), err
}

// remark writes the words into the request as it was read. Again is set where somebody has written into it since.
func (d *Desk) remark(ctx context.Context, a Approval, w Word) (said Approval, again bool, err error) {
	now := d.Clock.Now().UTC().Truncate(time.Millisecond)
	switch {
	case a.Status == Expired || a.Status == Pending && !now.Before(a.ExpiresAt):
		return Approval{}, false, fmt.Errorf("say something of approval %s: %w", a.ID, ErrExpired)
	case a.Status != Pending:
		return Approval{}, false, &DecidedError{Approval: a}
	case a.lastSaid(w):
		return a, false, nil
	case len(a.Thread) >= MaxRemarks:
		return Approval{}, false, fmt.Errorf("say something of approval %s: it has %d: %w", a.ID, len(a.Thread), ErrThreadFull)
	}
	said = a
	said.Thread = append(slices.Clip(a.Thread), Remark{By: w.By.ID, At: now, Text: w.Text, Via: w.Via})
	op, err := SettleOp(said, now)
	if err != nil {
		return Approval{}, false, err
	}
	if len(op.Item.Body) > maxSpoken {
		return Approval{}, false, fmt.Errorf("say something of approval %s: it would have %d bytes, at most %d: %w", a.ID, len(op.Item.Body), maxSpoken, ErrThreadFull)
	}
	for i, p := range a.Permissions {
		op.If = append(op.If, isVerdict(i, p.recorded()))
	}
	err = d.Table.Write(ctx, op)
	var raced *store.ConditionError
	switch {
	case err == nil:
		return said.written(), false, nil
	case errors.As(err, &raced):
		return Approval{}, true, nil
	default:
		return Approval{}, false, fmt.Errorf("say something of approval %s: %w", a.ID, err)
	}
}

// lastSaid reports whether the words are the newest of the thread: whoever got no answer says them again.
func (a Approval) lastSaid(w Word) bool {
	n := len(a.Thread)
	return n > 0 && a.Thread[n-1].By == w.By.ID && a.Thread[n-1].Text == w.Text
}
