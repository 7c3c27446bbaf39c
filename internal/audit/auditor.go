package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Journal reads runs; *store.Journal is one, and says what the errors are.
type Journal interface {
	Entries(ctx context.Context, tenant, run string, from int64, count int) ([]run.Entry, error)
	Before(ctx context.Context, tenant, run string, seq int64) (run.AgentState, error)
}

// Auditor derives records from what is durable: a run's journal and the requests that it names. All fields are
// required. Safe for concurrent use, and several of them may audit the same run: each fact makes one record.
type Auditor struct {
	Table   store.Table
	Journal Journal
	Log     *Log
}

const (
	// stretch is how many journal entries are audited at once.
	stretch = 200
	// maxMoved is how often a stretch is planned again because somebody else has audited it meanwhile.
	maxMoved = 30
)

// Run audits what has happened to a run since it was last audited: of each run, records stand in the order of its
// journal, and what people said on an open request behind that of the entries there are. A run that does not exist is
// store.ErrNoRun. After any error it may be called again.
func (a *Auditor) Run(ctx context.Context, tenant, run string) error {
	for moved := 0; ; {
		more, err := a.advance(ctx, tenant, run)
		switch {
		case errors.Is(err, errMoved) && moved < maxMoved:
			moved++
		case err != nil:
			return fmt.Errorf("audit run %s: %w", run, err)
		case !more:
			return nil
		}
	}
}

// advance audits a stretch; more reports whether there may be another.
func (a *Auditor) advance(ctx context.Context, tenant, run string) (more bool, err error) {
	before, err := a.cursor(ctx, tenant, run)
	if err != nil || before.Done {
		return false, err
	}
	entries, err := a.Journal.Entries(ctx, tenant, run, before.Seq, stretch)
	if err != nil {
		return false, err
	}
	if len(entries) == 0 && before.Seq == 0 {
		return false, store.ErrNoRun
	}
	w := &walk{Auditor: a, ctx: ctx, cursor: before.clone()}
	if len(entries) > 0 {
		if err := w.entries(entries); err != nil {
			return false, err
		}
	}
	more = len(entries) == stretch
	if !more {
		if err := w.tail(); err != nil {
			return false, err
		}
	}
	if w.cursor.same(before) || w.cursor.Done && before.version == 0 && len(w.records) == 0 { // a run that nobody was asked about leaves nothing
		return more, nil
	}
	return more, a.commit(ctx, w.cursor, w.records)
}

// walk goes through a stretch of a journal and collects its records.
type walk struct {
	*Auditor
	ctx     context.Context
	cursor  cursor
	records []Record
}

func (w *walk) entries(entries []run.Entry) error {
	s, err := w.Journal.Before(w.ctx, w.cursor.Tenant, w.cursor.Run, entries[0].Seq)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.entry(s, e); err != nil {
			return err
		}
		if s, err = run.ApplyEntry(s, e); err != nil {
			return err
		}
		w.cursor.Seq = e.Seq + 1
	}
	w.cursor.Done = s.Status == run.RunDone
	return nil
}

// entry folds an entry event by event, and looks at what each has changed.
func (w *walk) entry(s run.AgentState, e run.Entry) error {
	d := run.NewDraft(s, e.Writer, e.Time)
	for i, event := range e.Events {
		before := d.State
		if err := d.Add(event); err != nil {
			return fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		c := change{walk: w, before: &before, after: &d.State, entry: e, index: i}
		if err := c.audit(event); err != nil {
			return err
		}
	}
	if d.State.Status != run.RunDone {
		return nil
	}
	for len(w.cursor.Open) > 0 { // requests about tools stay with a run that has ended
		if err := w.closes(w.cursor.Open[0].Approval, e); err != nil {
			return err
		}
	}
	return nil
}

// tail audits what people have said on requests that are open as far as the journal goes.
func (w *walk) tail() error {
	for i := range w.cursor.Open {
		a, err := w.request(w.cursor.Open[i].Approval)
		if err != nil {
			return err
		}
		w.said(a, &w.cursor.Open[i])
	}
	return nil
}

func (w *walk) request(id string) (approval.Approval, error) {
	return approval.Get(w.ctx, w.Table, w.cursor.Tenant, id)
}

func (w *walk) add(r Record) { w.records = append(w.records, r) }
