package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// events reads a whole stream; the error is the one it ended with.
func events(r io.Reader) ([]event, error) {
	e := eventReader{r: bufio.NewReader(r)}
	var list []event
	for {
		ev, err := e.next()
		if err != nil {
			return list, err
		}
		list = append(list, event{ev.name, bytes.Clone(ev.data)})
	}
}

func TestEvents(t *testing.T) {
	data := func(s string) event { return event{data: []byte(s)} }
	tests := []struct {
		name, stream string
		want         []event
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []event{data("a")}},
		{"two", "data: a\n\ndata: b\n\n", []event{data("a"), data("b")}},
		{"lines", "data: a\ndata\ndata:  b\n\n", []event{data("a\n\n b")}},
		{"name and others", "event: error\nid: 1\nretry: 2\nwhat: x\ndata: a\n\ndata: b\n\n", []event{{"error", []byte("a")}, data("b")}},
		{"a name without data is forgotten", "event: error\n\ndata: b\n\n", []event{data("b")}},
		{"comments", ": x\n\n:\n\ndata: a\n: data: b\n\n", []event{data("a")}},
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []event{data("a\nb"), data("c")}},
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []event{data("a\nb"), data("c")}},
		{"byte order mark", "\uFEFFdata: a\n\n", []event{data("a")}},
		{"no blank line at the end", "data: a\n", []event{data("a")}},
		{"cut line", "data: a\n\ndata: b", []event{data("a")}},
		{"cut line behind a whole one", "data: a\ndata: b", []event{data("a")}},
		{"empty data", "data\n\n", []event{{}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := events(strings.NewReader(tt.stream))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, len(tt.want), len(got))
			for i := range got {
				require.Equal(t, tt.want[i].name, got[i].name)
				require.Equal(t, string(tt.want[i].data), string(got[i].data))
			}
		})
	}
}

// However the bytes arrive and whatever ends the lines, the events are the same.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: x\ndata: a\ndata: b\n\n: c\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: a\r\n\r\ndata: b\r\r\n\ndata"))
	f.Add([]byte("\uFEFFdata: a\n\n\n\ndata:b\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		want, err := events(bytes.NewReader(stream))
		require.ErrorIs(t, err, io.EOF)
		slow, err := events(iotest.OneByteReader(bytes.NewReader(stream)))
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, slow)
		if !bytes.ContainsRune(stream, '\r') {
			crlf, err := events(bytes.NewReader(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n"))))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, want, crlf)
		}
	})
}

// A stream of any bytes is a reply or a model error.
func FuzzStream(f *testing.F) {
	f.Add([]byte(text("a") + done("stop") + usageOnly + end))
	f.Add([]byte(chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"get","arguments":"{"}}]}`) + end))
	f.Add([]byte("data: {\"error\":{\"code\":429}}\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var shown strings.Builder
		a := &assembly{tell: func(d agent.Delta) {
			if d.Kind == agent.DeltaText {
				shown.WriteString(d.Text)
			}
		}}
		err := a.readStream(context.Background(), bufio.NewReader(bytes.NewReader(stream)))
		if err == nil {
			require.Equal(t, shown.String(), a.reply().Text)
			return
		}
		var failure *agent.ModelError
		require.True(t, errors.As(err, &failure))
		require.True(t, failure.Class.Valid())
		if kept := failure.Partial; kept != nil {
			require.Equal(t, shown.String(), kept.Text)
			for _, c := range kept.Calls {
				_, err := jsonx.CompactJSON(c.Input, jsonx.JSONLimits{})
				require.NoError(t, err)
			}
		}
	})
}

// Calls whose arguments come in pieces, in any order between calls, come out whole and in order of their index.
func TestPropertyAssembly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inputs := rapid.SliceOfN(rapid.StringN(1, 12, -1), 1, 5).Draw(t, "inputs")
		left := make([][]rune, len(inputs))
		for i, s := range inputs {
			left[i] = []rune(s)
		}
		started := make([]bool, len(inputs))
		var stream strings.Builder
		for open := len(inputs); open > 0; {
			i := rapid.IntRange(0, len(inputs)-1).Draw(t, "call")
			if len(left[i]) == 0 {
				continue
			}
			n := rapid.IntRange(1, len(left[i])).Draw(t, "piece")
			stream.WriteString(callDelta(t, i, started[i], string(left[i][:n])))
			left[i], started[i] = left[i][n:], true
			if len(left[i]) == 0 {
				open--
			}
		}
		told := make([]string, len(inputs)) // the arguments as they were told, by id
		a := &assembly{tell: func(d agent.Delta) {
			i, err := strconv.Atoi(strings.TrimPrefix(d.Call, "id"))
			require.NoError(t, err)
			told[i] += d.Text
		}}
		require.NoError(t, a.readStream(context.Background(), bufio.NewReader(strings.NewReader(stream.String()+end))))
		require.Equal(t, inputs, told)
		reply := a.reply()
		require.Len(t, reply.Calls, len(inputs))
		for i, c := range reply.Calls {
			require.Equal(t, call(fmt.Sprintf("id%d", i), "get", inputs[i]), c)
		}
	})
}

// callDelta is a chunk with a piece of a call's arguments; the first of a call brings its id and name.
func callDelta(t require.TestingT, index int, started bool, arguments string) string {
	function := map[string]any{"arguments": arguments}
	d := map[string]any{"index": index, "function": function}
	if !started {
		d["id"], function["name"] = fmt.Sprintf("id%d", index), "get"
	}
	raw, err := json.Marshal(map[string]any{"tool_calls": []any{d}})
	require.NoError(t, err)
	return chunk(string(raw))
}
