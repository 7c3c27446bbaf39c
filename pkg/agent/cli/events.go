package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// eventsShown shows events as they come, a line each, and keeps those that have an id for the answer in JSON.
type eventsShown struct {
	p      *program
	format string // "" = the journal's facts
	last   string // the id of the newest one

	facts   []api.Event
	encoded []json.RawMessage
}

func (to *eventsShown) fact(e api.Event) error {
	to.last = e.ID
	to.p.tell("%-8s %s %-14s %s", e.ID, stamp(e.At), e.Type, show.OneLine(e.Data, nil))
	to.facts = append(to.facts, e)
	return nil
}

func (to *eventsShown) event(id string, e json.RawMessage) error {
	to.p.tell("%-8s %s", id, show.OneLine(e, nil))
	if id != "" {
		to.last = id
		to.encoded = append(to.encoded, e)
	}
	return nil
}

func (to *eventsShown) answer() error {
	if to.format == "" {
		return to.p.answer(api.EventPage{Events: append([]api.Event{}, to.facts...)})
	}
	return to.p.answer(api.EncodedPage{Events: append([]json.RawMessage{}, to.encoded...)})
}

// page shows a page of events behind an id and gives that of the next page; "" = there is none.
func (to *eventsShown) page(ctx context.Context, s *session, run, after string) (next string, err error) {
	if to.format != "" {
		return to.encodedPage(ctx, s, run, after)
	}
	page, err := call(ctx, s, func(c *api.Client) (api.EventPage, error) { return c.Events(ctx, run, after, 200) })
	if err != nil {
		return "", err
	}
	for _, e := range page.Events {
		if err := to.fact(e); err != nil {
			return "", err
		}
	}
	return page.Cursor, nil
}

func (to *eventsShown) encodedPage(ctx context.Context, s *session, run, after string) (next string, err error) {
	page, err := call(ctx, s, func(c *api.Client) (api.EncodedPage, error) { return c.EncodedEvents(ctx, run, to.format, after, 200) })
	if err != nil {
		return "", err
	}
	for _, e := range page.Events {
		id, err := placeOf(e)
		if err != nil {
			return "", err
		}
		if err := to.event(id, e); err != nil {
			return "", err
		}
	}
	return page.Cursor, nil
}

// placeOf is the id of an encoded event: the one it names, or its sequence and index.
func placeOf(e json.RawMessage) (string, error) {
	var at struct {
		ID    string      `json:"id"`
		Seq   json.Number `json:"seq"`
		Index json.Number `json:"index"`
	}
	if err := json.Unmarshal(e, &at); err != nil {
		return "", fmt.Errorf("read event: %w", err)
	}
	if at.ID == "" {
		return string(at.Seq + "." + at.Index), nil
	}
	return at.ID, nil
}

// events shows all events there are.
func (s *session) events(ctx context.Context, run, after string, to *eventsShown) error {
	for {
		next, err := to.page(ctx, s, run, after)
		if after = next; err != nil || after == "" {
			return err
		}
	}
}

// tail shows the events as they come, until the run is done.
func (s *session) tail(ctx context.Context, runID, after string, to *eventsShown) error {
	to.last = after
	for {
		r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, runID) })
		if err != nil {
			return err
		}
		if to.format == "" {
			err = s.client.Follow(ctx, runID, to.last, to.fact)
		} else {
			err = s.client.FollowEncoded(ctx, runID, to.format, to.last, to.event)
		}
		if err == nil && r.Status == run.RunDone {
			return nil
		}
		if _, err := s.again(ctx, err); err != nil {
			return err
		}
	}
}
