package openai

import (
	"bufio"
	"bytes"
)

// event is one server-sent event. Data lines are joined by a line feed.
type event struct {
	name string
	data []byte
}

// eventReader reads a text/event-stream (WHATWG HTML, section 9.2): lines end in CR, LF or CRLF, lines that start with
// a colon are comments, a blank line ends an event. Events without data are skipped.
type eventReader struct {
	r       *bufio.Reader
	line    []byte
	afterCR bool // the LF that may follow belongs to the line before
	started bool
}

// next is the next event. It returns the reader's error, io.EOF included, once there is none. An event whose lines are
// all there counts even if the blank line after it is missing; a line that was cut does not.
func (e *eventReader) next() (event, error) {
	var ev event
	seen := false
	for {
		line, err := e.readLine()
		switch {
		case err != nil && seen:
			return ev, nil
		case err != nil:
			return event{}, err
		case len(line) == 0 && seen:
			return ev, nil
		case len(line) == 0:
			ev = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if seen {
				ev.data = append(ev.data, '\n')
			}
			ev.data, seen = append(ev.data, value...), true
		}
	}
}

// readLine is the next line without its end. It is valid until the next call. A line without an end is the reader's
// error.
func (e *eventReader) readLine() ([]byte, error) {
	e.line = e.line[:0]
	for {
		if _, err := e.r.Peek(1); err != nil {
			return nil, err
		}
		if e.takeLine() {
			// Take the byte order mark off the stream's first line.
			line := e.line
			if !e.started {
				e.started = true
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			}
			return line, nil
		}
	}
}

// takeLine moves what is buffered, up to a line's end, to the line, and reports whether the end was there.
func (e *eventReader) takeLine() bool {
	buffered, _ := e.r.Peek(e.r.Buffered()) // cannot fail: it asks for what is there
	skip := 0
	if e.afterCR && buffered[0] == '\n' {
		skip = 1
	}
	e.afterCR = false
	rest := buffered[skip:]
	n := bytes.IndexAny(rest, "\r\n")
	ended := n >= 0
	if ended {
		e.afterCR = rest[n] == '\r'
		skip++
	} else {
		n = len(rest)
	}
	e.line = append(e.line, rest[:n]...)
	_, _ = e.r.Discard(skip + n) // nor can this
	return ended
}
