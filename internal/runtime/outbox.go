package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Events about runs and requests are published (docs/events.md). The events of an entry are one item, written in the
// entry's transaction: PK T#tenant#OUTBOX#run, SK the entry's sequence. The process that commits the entry then sends
// them. The item is in the index until its events are sent, and the sweep sends what is left there. An event that is
// sent again has the same id.

const (
	publishTime = 5 * time.Second    // how long the process that commits an entry tries to send its events
	sentTime    = 7 * 24 * time.Hour // after that the table may delete the item of sent events
)

func outboxIndex(tenant string) string { return "T#" + tenant + "#OUTBOX" }

func outboxPK(tenant, run string) string { return outboxIndex(tenant) + "#" + run }

// outbox returns the write of the item with the events that an entry publishes. It returns none if there are no events
// or no bus.
func (p Ports) outbox(d *run.Draft, def *agent.Definition) ([]store.Op, error) {
	if p.Publish == nil {
		return nil, nil
	}
	events, err := published(d, def)
	if err != nil || len(events) == 0 {
		return nil, err
	}
	body, err := json.Marshal(events)
	if err != nil {
		return nil, fmt.Errorf("publish entry %d of run %s: %w", d.Entry.Seq, d.State.Run, err)
	}
	seq := fmt.Sprintf("%010d", d.Entry.Seq)
	return []store.Op{{Kind: store.Put, Item: store.Item{
		Key:       store.Key{PK: outboxPK(d.State.Tenant, d.State.Run), SK: seq},
		Index:     store.Shard(outboxIndex(d.State.Tenant), d.State.Run),
		IndexSort: fmt.Sprintf("%013d#%s#%s", d.Entry.Time.UnixMilli(), d.State.Run, seq),
		Body:      body,
	}}}, nil
}

// send sends the events of an item and removes the item from the index.
func (p Ports) send(ctx context.Context, it store.Item) error {
	var events []policy.Outgoing
	if err := jsonx.ReadStored("outbox", it.Body, &events); err != nil {
		return store.Damaged(it.Key, "%w", err)
	}
	for _, e := range events {
		if err := p.Publish.Emit(ctx, e); errors.Is(err, ErrUndeliverable) { // it would be refused again
			p.warn("publish event "+e.ID, err)
		} else if err != nil {
			return fmt.Errorf("publish event %s: %w", e.ID, err)
		}
	}
	sentAttrs := map[string]store.Value{"TTL": store.Num(p.Clock.Now().Add(sentTime).Unix())}
	if err := p.Table.Write(ctx, store.Op{Kind: store.Put, Item: store.Item{Key: it.Key, Attrs: sentAttrs}}); err != nil {
		return fmt.Errorf("note that events are published: %w", err)
	}
	return nil
}

// SendOutbox sends the events on one page of a tenant's unsent items, of entries committed no later than by. It returns
// the number of sent items and the cursor of the next page; "" = there is none. An unreadable item is skipped and
// becomes part of the error. A bus that fails ends the page.
func (p Ports) SendOutbox(
	ctx context.Context, tenant string, by time.Time, cursor string,
) (sent int64, next string, err error) {
	if p.Publish == nil {
		return 0, "", nil
	}
	r := store.Range{PK: outboxIndex(tenant), Index: true, Limit: sweepPage, Cursor: cursor,
		To: fmt.Sprintf("%013d~", by.UnixMilli())}
	items, next, err := store.ReadShards(ctx, p.Table, r, func(it store.Item) (store.Item, error) { return it, nil })
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return 0, "", fmt.Errorf("list events that are not published: %w", err)
	}
	for _, it := range items {
		failed := p.send(ctx, it)
		switch {
		case failed == nil:
			sent++
		case errors.Is(failed, store.ErrDamaged):
			err = errors.Join(err, failed)
		default:
			return sent, "", failed
		}
	}
	return sent, next, err
}

// publishedData is the data of a published event. It holds no content, as its readers may not be allowed to read runs.
type publishedData struct {
	Version int           `json:"version"` // version of this form
	Time    time.Time     `json:"time"`
	Seq     int64         `json:"seq"`    // the run's entry, which gives the order of a run's events
	Status  run.RunStatus `json:"status"` // of the run after the entry
	Parent  string        `json:"parent,omitempty"`
	Root    string        `json:"root,omitempty"`
	Links   struct {
		Run     string `json:"run"`
		Request string `json:"request,omitempty"`
	} `json:"links"` // paths of the HTTP API
	Request *publishedRequest `json:"request,omitempty"`
	Reason  run.Reason        `json:"reason,omitempty"` // reason of a run's end
	Code    run.ErrorCode     `json:"code,omitempty"`   // code of a failed run
}

// publishedRequest is a request in an event. Outcome, By and With are set once it has ended. The fields from Kind to
// Until, except Calls, are set when people are asked.
type publishedRequest struct {
	ID        string        `json:"id"`
	Kind      approval.Kind `json:"kind,omitempty"`
	Calls     []string      `json:"calls,omitempty"`
	Tools     []string      `json:"tools,omitempty"`
	Digest    string        `json:"digest,omitempty"` // digest of the action: the tool, its arguments and the policy
	Effect    run.Effect    `json:"effect,omitempty"`
	Approvers []string      `json:"approvers,omitempty"`
	Above     [][]string    `json:"above,omitempty"`
	Quorum    int           `json:"quorum,omitempty"`
	FourEyes  bool          `json:"fourEyes,omitempty"`
	Until     time.Time     `json:"until,omitzero"`
	Outcome   string        `json:"outcome,omitempty"`
	By        string        `json:"by,omitempty"`
	With      []string      `json:"with,omitempty"`
}

// published returns the events of a draft: the start of the run, the requests that it opens and closes, and the end of
// the run. Their detail-types are countersign.run.started.v1 and .ended.v1, countersign.request.asked.v1, .decided.v1,
// .expired.v1 and .closed.v1. A change that a consumer could notice, other than a new field, needs a new type.
func published(d *run.Draft, def *agent.Definition) (events []policy.Outgoing, err error) {
	after := d.Committed()
	s := &after
	add := func(of, id, what string, data publishedData) {
		data.Version, data.Time, data.Seq, data.Status = 1, d.Entry.Time.UTC(), d.Entry.Seq, s.Status
		data.Links.Run = "/v1/runs/" + s.Run
		if data.Request != nil {
			data.Links.Request = "/v1/approvals/" + data.Request.ID
		}
		if s.Parent != nil {
			data.Parent, data.Root = s.Parent.Run, s.Parent.Root
		}
		raw, failed := jsonx.MarshalVerbatim(data)
		err = errors.Join(err, failed)
		events = append(events, policy.Outgoing{
			ID: id + "#" + what, Type: "countersign." + of + "." + what + ".v1", Tenant: s.Tenant, Run: s.Run, Agent: s.Agent,
			Subject: cmp.Or(s.Subject, s.Run), ExecutionUnits: s.ExecutionUnits, Data: raw,
		})
	}
	if d.Before.Entries == 0 {
		add("run", s.Run, "started", publishedData{})
	}
	var opened []approval.Approval
	for _, c := range askedCalls(d) {
		opened = append(opened, approval.NewCallRequest(def, &d.State, c))
	}
	if s.Status != run.RunDone {
		for _, r := range askedTools(d) {
			opened = append(opened, approval.NewToolsRequest(def, &d.State, r))
		}
	}
	for _, a := range opened {
		add("request", a.ID, "asked", publishedData{Request: &publishedRequest{
			ID: a.ID, Kind: a.Kind, Calls: a.Calls, Tools: a.Tools, Digest: a.Digest, Effect: a.Effect, Approvers: a.Approvers,
			Above: a.Above, Quorum: a.Quorum, FourEyes: a.FourEyes, Until: a.ExpiresAt.UTC(),
		}})
	}
	for _, c := range closedRequests(d) {
		what := "decided"
		switch approval.Status(c.Outcome) {
		case approval.Expired:
			what = "expired"
		case approval.Voided, approval.Cancelled:
			what = "closed"
		}
		add("request", c.ID, what, publishedData{Request: &c})
	}
	if s.Status == run.RunDone {
		data := publishedData{Reason: s.Reason}
		if s.Error != nil {
			data.Code = s.Error.Code
		}
		add("run", s.Run, "ended", data)
		events[len(events)-1].Journal = &policy.JournalHead{Seq: d.Entry.Seq, Hash: s.Hash()}
	}
	return events, err
}

// closedRequests returns the requests that were open before the draft and are closed after it. The outcome of each is a
// decision, or the status with which the request ends.
func closedRequests(d *run.Draft) (closed []publishedRequest) {
	open := map[string]bool{}
	for _, c := range d.State.Waits() {
		open[c.Wait.Approval] = true
	}
	for _, r := range d.State.OpenRequests() {
		open[r.Approval] = true
	}
	otherwise := approval.Voided
	if d.State.Status == run.RunDone {
		otherwise = approval.Cancelled
	}
	for _, c := range d.Before.Waits() {
		if c.Wait.For == run.ForAnswer || open[c.Wait.Approval] {
			continue
		}
		end := publishedRequest{ID: c.Wait.Approval, Outcome: string(otherwise), Calls: []string{c.ID}}
		for _, e := range d.Entry.Events {
			if isDecisionOn(e, c) {
				end.setDecision(e)
			}
		}
		if as, ended := overtakenStatus(c, d.Entry.Events); ended {
			end.Outcome = string(as)
		}
		closed = append(closed, end)
	}
	for _, r := range d.Before.OpenRequests() {
		if open[r.Approval] {
			continue
		}
		end := publishedRequest{ID: r.Approval, Outcome: string(otherwise)}
		for _, t := range r.Tools {
			end.Calls = append(end.Calls, t.Calls...)
		}
		for _, e := range d.Entry.Events {
			switch e := e.(type) {
			case run.Decided:
				if e.Approval == r.Approval {
					end.setDecision(e)
				}
			case run.PermissionAnswered:
				if e.Approval == r.Approval && e.Expired {
					end.Outcome, end.By, end.With = string(approval.Expired), "", nil
				}
			}
		}
		closed = append(closed, end)
	}
	return closed
}

func (a *publishedRequest) setDecision(e run.Event) {
	switch e := e.(type) {
	case run.Decided:
		a.Outcome, a.By, a.With = string(e.Action), e.By, e.With
		if e.Args != nil {
			a.Outcome = "edit"
		}
		if e.Action == run.ActionAskAgain || e.Action == run.ActionVoid {
			a.Outcome, a.By, a.With = string(approval.Voided), "", nil
		}
	case run.Answered:
		a.By, a.With = e.By, e.With
		switch {
		case e.Rerun:
			a.Outcome = "rerun"
		case e.IsError:
			a.Outcome = "error"
		default:
			a.Outcome = "result"
		}
	}
}
