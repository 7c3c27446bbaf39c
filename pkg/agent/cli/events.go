package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// eventPrinter prints events as they come, one line each, and collects those with an id for the JSON document.
type eventPrinter struct {
	p      *program
	format string // "" = journal events
	last   string // id of the newest printed event

	facts   []api.Event
	encoded []json.RawMessage
}

func (to *eventPrinter) printFact(e api.Event) error {
	to.last = e.ID
	to.p.printText("%-8s %s %-14s %s", e.ID, to.p.stamp(e.At), e.Type, show.OneLine(e.Data, nil))
	to.facts = append(to.facts, e)
	return nil
}

func (to *eventPrinter) printEncoded(id string, e json.RawMessage) error {
	to.p.printText("%-8s %s", id, show.OneLine(e, nil))
	if id != "" {
		to.last = id
		to.encoded = append(to.encoded, e)
	}
	return nil
}

func (to *eventPrinter) printJSON() error {
	if to.format == "" {
		return to.p.printJSON(api.Page[api.Event]{Items: append([]api.Event{}, to.facts...)})
	}
	return to.p.printJSON(api.Page[json.RawMessage]{Items: append([]json.RawMessage{}, to.encoded...)})
}

// printPage prints a page of events behind an id and returns the cursor of the next page; "" = the last page.
func (to *eventPrinter) printPage(ctx context.Context, s *session, run, after string) (next string, err error) {
	if to.format != "" {
		return to.printEncodedPage(ctx, s, run, after)
	}
	page,
		err := callAPI(ctx, s, func(c *api.Client) (api.Page[api.Event], error) { return c.Events(ctx, run, after, 200) })
	if err != nil {
		return "", err
	}
	for _, e := range page.Items {
		if err := to.printFact(e); err != nil {
			return "", err
		}
	}
	return page.Cursor, nil
}

func (to *eventPrinter) printEncodedPage(ctx context.Context, s *session, run, after string) (next string, err error) {
	page, err := callAPI(ctx, s, func(c *api.Client) (api.Page[json.RawMessage], error) {
		return c.EncodedEvents(ctx, run, to.format, after, 200)
	})
	if err != nil {
		return "", err
	}
	for _, e := range page.Items {
		var at struct {
			ID    string      `json:"id"`
			Seq   json.Number `json:"seq"`
			Index json.Number `json:"index"`
		}
		if err := json.Unmarshal(e, &at); err != nil {
			return "", fmt.Errorf("read event: %w", err)
		}
		if err := to.printEncoded(cmp.Or(at.ID, string(at.Seq+"."+at.Index)), e); err != nil {
			return "", err
		}
	}
	return page.Cursor, nil
}

// followEvents prints events as they come, until the run is done.
func (s *session) followEvents(ctx context.Context, runID, after string, to *eventPrinter) error {
	to.last = after
	for {
		r, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.RunWithoutMessages(ctx, runID) })
		if err != nil {
			return err
		}
		if to.format == "" {
			err = s.client.Follow(ctx, runID, to.last, to.printFact)
		} else {
			err = s.client.FollowEncoded(ctx, runID, to.format, to.last, to.printEncoded)
		}
		if err == nil && r.Status == run.RunDone {
			return nil
		}
		if _, err := s.reconnect(ctx, err); err != nil {
			return err
		}
	}
}
