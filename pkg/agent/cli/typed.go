package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/countersign/countersign/internal/clock"
)

// typed reads what a person types, a line at a time. Waiting for a line ends with the context; the line is then the next one's.
type typed struct {
	in      *bufio.Reader
	clock   clock.Clock
	got     chan typedLine
	reading bool
}

type typedLine struct {
	text string
	err  error
}

func newTyped(in io.Reader, c clock.Clock) *typed {
	return &typed{in: bufio.NewReader(in), clock: c, got: make(chan typedLine, 1)}
}

// line is the next line without its end. io.EOF says that there are no more.
func (t *typed) line(ctx context.Context) (string, error) {
	if !t.reading {
		t.reading = true
		t.clock.Go(func() {
			s, err := t.in.ReadString('\n')
			t.got <- typedLine{s, err}
		})
	}
	select {
	case l := <-t.got:
		t.reading = false
		if errors.Is(l.err, io.EOF) && l.text != "" {
			l.err = nil
		}
		return strings.TrimRight(l.text, "\r\n"), l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
