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
)

// Follow calls each with a run's events behind after (SEQ, SEQ.INDEX, or "" for all), as they come, and returns nil when the server ends the
// stream: at the run's end, or after about 20 s. Call it again with the last event's id to go on. An error of each ends it and is
// returned.
func (c *Client) Follow(ctx context.Context, run, after string, each func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the stream is let go of when each has had enough
	resp, err := c.do(ctx, request{
		method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(run) + "/events", query: values("after", after), accept: "text/event-stream",
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		data, err := nextEvent(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return unreachable(ctx, err)
		}
		var e Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("read event of run %s: %w", run, err)
		}
		if err := each(e); err != nil {
			return err
		}
	}
}

// nextEvent reads up to an event's end and gives its data. The id and the type are in the data, too.
func nextEvent(in *bufio.Reader) (string, error) {
	data := ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "data: "); ok {
			data += value
		}
		if line == "" && data != "" {
			return data, nil
		}
	}
}
