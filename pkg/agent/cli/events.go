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

// journalFormat is the format of events that the command line shows with their time and type.
const journalFormat = "journal"

// eventPrinter prints events as they come, one line each, and collects those with an id for the JSON document.
type eventPrinter struct {
	p      *program
	format string
	last   string // id of the newest printed event
	events []json.RawMessage
}

// print prints an event. Live pieces of text have no id.
func (to *eventPrinter) print(id string, e json.RawMessage) error {
	if to.format == journalFormat {
		var fact api.Event
		if err := json.Unmarshal(e, &fact); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		to.p.printText("%-8s %s %-14s %s", id, to.p.stamp(fact.At), fact.Type, show.OneLine(fact.Data, nil))
	} else {
		to.p.printText("%-8s %s", id, show.OneLine(e, nil))
	}
	if id != "" {
		to.last = id
		to.events = append(to.events, e)
	}
	return nil
}

func (to *eventPrinter) printJSON() error {
	return to.p.printJSON(api.Page[json.RawMessage]{Items: append([]json.RawMessage{}, to.events...)})
}

// printPage prints a page of events behind an id and returns the cursor of the next page; "" = the last page.
func (to *eventPrinter) printPage(ctx context.Context, s *session, run, after string) (next string, err error) {
	page, err := callAPI(ctx, s, func(c *api.Client) (api.Page[json.RawMessage], error) {
		return c.EncodedEvents(ctx, run, to.format, after, pageSize)
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
		if err := to.print(cmp.Or(at.ID, string(at.Seq+"."+at.Index)), e); err != nil {
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
		err = s.client.FollowEncoded(ctx, runID, to.format, to.last, to.print)
		if err == nil && r.Status == run.RunDone {
			return nil
		}
		if _, err := s.reconnect(ctx, err); err != nil {
			return err
		}
	}
}
