package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/countersign/countersign/internal/clock"
)

// lineReader reads what a person types, a line at a time. Waiting for a line ends with the context; the line is then the next one's.
type lineReader struct {
	in      *bufio.Reader
	clock   clock.Clock
	results chan readResult
	reading bool
}

type readResult struct {
	text string
	err  error
}

func newLineReader(in io.Reader, c clock.Clock) *lineReader {
	return &lineReader{in: bufio.NewReader(in), clock: c, results: make(chan readResult, 1)}
}

// readLine is the next line without its end. io.EOF says that there are no more.
func (t *lineReader) readLine(ctx context.Context) (string, error) {
	if !t.reading {
		t.reading = true
		t.clock.Go(func() {
			s, err := t.in.ReadString('\n')
			t.results <- readResult{s, err}
		})
	}
	select {
	case l := <-t.results:
		t.reading = false
		if errors.Is(l.err, io.EOF) && l.text != "" {
			l.err = nil
		}
		return strings.TrimRight(l.text, "\r\n"), l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
