package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign/countersign/internal/web/stream"
)

// Follow calls each with the events of a run behind after (SEQ, SEQ.INDEX, or "" for all), as they come. It returns
// nil when the server ends the stream: at the run's end, or after about 20 s. To continue, call it with the last
// event's id. An error of each ends it and is returned.
func (c *Client) Follow(ctx context.Context, run, after string, each func(Event) error) error {
	return c.followStream(ctx, run, "", after, func(got serverEvent) error {
		var e Event
		if err := json.Unmarshal([]byte(got.data), &e); err != nil {
			return fmt.Errorf("read event of run %s: %w", run, err)
		}
		return each(e)
	})
}

// FollowEncoded is Follow in a format of package stream. Each gets an event's id and JSON. Live pieces of text have
// no id.
func (c *Client) FollowEncoded(
	ctx context.Context, run, format, after string, each func(id string, event json.RawMessage) error,
) error {
	return c.followStream(ctx, run, format, after,
		func(got serverEvent) error { return each(got.id, json.RawMessage(got.data)) })
}

func (c *Client) followStream(ctx context.Context, run, format, after string, each func(serverEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the stream when each returns an error
	resp, err := c.do(ctx, request{
		method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(run) + "/events", query: values("format", format,
			"cursor", after),
		accept: "text/event-stream",
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		got, err := readEvent(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreachableError(ctx, err)
		}
		if last := stream.Format(format).Wire().Last; last != "" && got.data == last {
			return nil
		}
		if err := each(got); err != nil {
			return err
		}
	}
}

// serverEvent is one event of a stream. Its data contains the type.
type serverEvent struct{ id, data string }

// readEvent reads up to the end of an event.
func readEvent(in *bufio.Reader) (serverEvent, error) {
	var got serverEvent
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return serverEvent{}, err
		}
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			got.id = value
		}
		if value, ok := strings.CutPrefix(line, "data: "); ok {
			got.data += value
		}
		if line == "" && got.data != "" {
			return got, nil
		}
	}
}
