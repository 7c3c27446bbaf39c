package observe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
)

func inBubble(t *testing.T, f func(t *testing.T, s *EMF, out *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		f(t, NewEMF(out, clock.System(), "Countersign"), out)
	})
}

// A line is a document of CloudWatch's format: counters summed, durations kept one by one, a set of dimensions each.
func TestDocuments(t *testing.T) {
	inBubble(t, func(t *testing.T, s *EMF, out *bytes.Buffer) {
		s.Count("Runs", 1, "Agent", "clerk")
		s.Count("Runs", 2, "Agent", "clerk")
		s.Millis("Latency", 1500*time.Microsecond, "Agent", "clerk")
		s.Millis("Latency", time.Second, "Agent", "clerk")
		s.Count("Ends", 1, "Reason", "done", "Agent", "clerk")
		s.Count("Ends", 1, "Agent", "clerk", "Reason", "done")
		s.Count("Repairs", 0)
		require.Empty(t, out.String(), "nothing before Flush")
		require.NoError(t, s.Flush())
		const at = `"Timestamp":946684800000`
		require.Equal(t, strings.Join([]string{
			`{"Agent":"clerk","Latency":[1.5,1000],"Runs":3,"_aws":{` + at + `,"CloudWatchMetrics":[{"Namespace":"Countersign","Dimensions":[["Agent"]],"Metrics":[{"Name":"Runs","Unit":"Count"},{"Name":"Latency","Unit":"Milliseconds"}]}]}}`,
			`{"Agent":"clerk","Ends":2,"Reason":"done","_aws":{` + at + `,"CloudWatchMetrics":[{"Namespace":"Countersign","Dimensions":[["Agent","Reason"]],"Metrics":[{"Name":"Ends","Unit":"Count"}]}]}}`,
			`{"Repairs":0,"_aws":{` + at + `,"CloudWatchMetrics":[{"Namespace":"Countersign","Dimensions":[[]],"Metrics":[{"Name":"Repairs","Unit":"Count"}]}]}}`,
			"",
		}, "\n"), out.String())
		out.Reset()
		require.NoError(t, s.Flush())
		require.Empty(t, out.String(), "once")
	})
}

// The format's bounds hold whatever is measured: 100 metrics a document, 100 values a metric, 30 dimensions, each with a value.
func TestBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *EMF, out *bytes.Buffer) {
		for i := range 250 {
			s.Count(fmt.Sprintf("M%d", i), 1, "Agent", "a")
			s.Millis("L", time.Duration(i)*time.Millisecond, "Agent", "b")
		}
		var dims []string
		for i := range 40 {
			dims = append(dims, fmt.Sprintf("D%02d", i), strings.Repeat("ü", 2000))
		}
		s.Count("Many", 1, dims...)
		s.Count("Empty", 1, "Agent", " ", "Odd")
		require.NoError(t, s.Flush())
		counted, measured := 0, 0
		for line := range strings.Lines(out.String()) {
			doc := check(t, line)
			for name, v := range doc {
				if strings.HasPrefix(name, "M") && name != "Many" {
					counted++
				}
				if list, ok := v.([]any); ok {
					measured += len(list)
				}
			}
		}
		require.Equal(t, 250, counted)
		require.Equal(t, 250, measured)
		require.Contains(t, out.String(), `"Agent":"none"`)
		require.Contains(t, out.String(), `"Odd":"none"`)
	})
}

// check holds a document to the specification: every metric and dimension that is declared has a member at the root.
func check(t *testing.T, line string) map[string]any {
	t.Helper()
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &doc))
	var aws struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []struct {
				Namespace  string
				Dimensions [][]string
				Metrics    []struct{ Name, Unit string }
			}
		} `json:"_aws"`
	}
	require.NoError(t, json.Unmarshal([]byte(line), &aws))
	require.Positive(t, aws.AWS.Timestamp)
	require.Len(t, aws.AWS.CloudWatchMetrics, 1)
	d := aws.AWS.CloudWatchMetrics[0]
	require.NotEmpty(t, d.Namespace)
	require.Len(t, d.Dimensions, 1)
	require.LessOrEqual(t, len(d.Dimensions[0]), 30)
	for _, name := range d.Dimensions[0] {
		v, ok := doc[name].(string)
		require.True(t, ok && v != "" && len(v) <= 1024, name)
	}
	require.NotEmpty(t, d.Metrics)
	require.LessOrEqual(t, len(d.Metrics), 100)
	for _, m := range d.Metrics {
		require.Contains(t, []string{"Count", "Milliseconds"}, m.Unit)
		switch v := doc[m.Name].(type) {
		case float64:
		case []any:
			require.LessOrEqual(t, len(v), 100)
		default:
			t.Fatalf("metric %s is %T", m.Name, v)
		}
	}
	return doc
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFlushSaysWhatFailed(t *testing.T) {
	s := NewEMF(broken{}, clock.System(), "N")
	s.Count("A", 1)
	require.EqualError(t, s.Flush(), "write metrics: disk full")
	require.NoError(t, s.Flush(), "what could not be written is not kept")
}

func TestConcurrentUse(t *testing.T) {
	out := &bytes.Buffer{}
	s := NewEMF(out, clock.System(), "N")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				s.Count("A", 1, "Agent", "x")
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Flush())
	require.Contains(t, out.String(), `"A":800`)
}

// The base is part of every set, and a span is in seconds.
func TestBaseAndSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &bytes.Buffer{}
		s := NewEMF(out, clock.System(), "Countersign", "StateMachine", "m")
		s.Count("Runs", 1)
		s.Seconds("Oldest", 90*time.Minute+time.Millisecond, "Agent", "clerk")
		require.NoError(t, s.Flush())
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], `"Dimensions":[["StateMachine"]]`)
		require.Contains(t, lines[0], `"StateMachine":"m"`)
		require.Contains(t, lines[1], `"Dimensions":[["Agent","StateMachine"]]`)
		require.Contains(t, lines[1], `"Oldest":5400,`)
		require.Contains(t, lines[1], `"Unit":"Seconds"`)
	})
}
