package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
)

// recordBoundary records the state in which a handler begins alone, and reports whether the simulation ends there
// because the state is known.
func (s *simulation) recordBoundary(function string, payload []byte) bool {
	isAlone := s.injector.LiveInvocations() == 0 && s.injector.IsSpent() && len(s.intervened) == len(s.Interventions)
	if s.IsKnownState == nil || !isAlone {
		return false
	}
	// The fingerprint is a digest of everything that can still matter: the table, the executions, the effect logs and
	// the rest of the script. Two states with one fingerprint go on alike. Random ids count by their first position,
	// instants by the minutes until then.
	var all bytes.Buffer
	for _, it := range s.table.All() {
		fmt.Fprintf(&all, "%s|%s|%s|%s|", it.PK, it.SK, it.Index, it.IndexSort)
		for _, k := range slices.Sorted(maps.Keys(it.Attrs)) {
			v := it.Attrs[k]
			fmt.Fprintf(&all, "%s=%s%d;", k, v.String(), v.Int())
		}
		all.Write(it.Body)
		all.WriteByte('\n')
	}
	fmt.Fprintf(&all, "%s %s timers=%d\n", function, payload, s.clock.Timers())
	for _, x := range s.machine.Engine.List(nil, "") { //nolint:staticcheck // List does not use the context
		fmt.Fprintf(&all, "%s %s %v\n", x.Name, x.Status, x.Status == asl.Running)
	}
	parts := map[string]*scriptedRun{s.run: s.scriptedRun} // the effect logs, and what is left of the script
	maps.Copy(parts, s.scriptedRuns)
	byTool := slices.SortedStableFunc(slices.Values(s.toolExecutions),
		func(a, b *toolExecution) int { return strings.Compare(a.tool, b.tool) })
	for _, run := range slices.Sorted(maps.Keys(parts)) {
		sr := parts[run]
		fmt.Fprintf(&all, "run %s requests=%d input=%v events=%d invoked=%d rerun=%v\n",
			run, len(sr.requests), sr.inputDuring, len(sr.events), len(sr.invokes), sr.reruns)
		for _, e := range byTool {
			if e.by == sr {
				fmt.Fprintf(&all, "%s %v %v %v %v\n", e.tool, e.key, e.finished, e.void, e.resultLost)
			}
		}
	}
	fmt.Fprintf(&all, "queued=%d triggered=%d expiring=%s redeployed=%v crash=%v accepted=%v cancelled=%v lost=%v "+
		"sweeps=%d interventions=%d violations=%d\n",
		len(s.people.queued), len(s.people.triggered), s.people.expiring, s.redeployed, s.crashRequests, s.acceptedMessages,
		s.cancelled, s.callerLost, s.Sweeps, len(s.intervened), len(s.violations))
	notes, _ := json.Marshal(s.notifications)
	all.Write(notes)
	sum := sha256.Sum256(s.canonicalize(all.Bytes()))
	fingerprint := [16]byte(sum[:16])
	s.Boundaries = append(s.Boundaries, Boundary{Call: len(s.injector.Calls()) + 1, Fingerprint: fingerprint})
	if s.IsKnownState(fingerprint) {
		s.Pruned = true
		s.endSignal.Notify()
	}
	return s.Pruned
}

// canonicalize replaces random ids by their positions, and instants by the minutes until then. It drops the numbers of
// request marks.
func (s *simulation) canonicalize(b []byte) []byte {
	out, places := make([]byte, 0, len(b)), map[string]int{}
	for len(b) > 0 {
		n := 0
		for n < len(b) && (b[n] >= '0' && b[n] <= '9' || b[n] >= 'a' && b[n] <= 'z' || b[n] >= 'A' && b[n] <= 'Z') {
			n++
		}
		word := b[:n]
		if n == 0 {
			word = b[:1]
			for n = 1; b[0] == requestMark[0] && n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
			}
		}
		if s.randomIDs.seen[string(word)] && n >= 10 {
			if _, ok := places[string(word)]; !ok {
				places[string(word)] = len(places)
			}
			out = fmt.Appendf(out, "<%d>", places[string(word)])
		} else if at, length := readInstant(b, n); length > 0 {
			n = length
			if left := at.Sub(s.clock.Now()); left <= 0 {
				out = append(out, "<past>"...)
			} else {
				out = fmt.Appendf(out, "<in %d min>", left.Round(time.Minute)/time.Minute)
			}
		} else {
			out = append(out, word...)
		}
		b = b[n:]
	}
	return out
}

// readInstant reads the instant that begins with the first word of n bytes, in milliseconds or RFC 3339, and returns
// its length; 0 = there is none.
func readInstant(b []byte, n int) (time.Time, int) {
	switch {
	case n == 13 && b[0] == '1':
		if ms, err := strconv.ParseInt(string(b[:n]), 10, 64); err == nil {
			return time.UnixMilli(ms), n
		}
	case n == 4 && b[0] == '2' && len(b) > 4 && b[4] == '-':
		if z := bytes.IndexByte(b[:min(len(b), len(time.RFC3339Nano))], 'Z'); z > 0 {
			if at, err := time.Parse(time.RFC3339Nano, string(b[:z+1])); err == nil {
				return at, z + 1
			}
		}
	}
	return time.Time{}, 0
}

// recordedIDs remembers the random ids that it returned, so that canonicalize finds them.
type recordedIDs struct {
	*clock.IDs
	seen map[string]bool
}

func (r *recordedIDs) Writer() string { return r.record(r.IDs.Writer()) }
func (r *recordedIDs) Token() string  { return r.record(r.IDs.Token()) }
func (r *recordedIDs) Key() string    { return r.record(r.IDs.Key()) }

func (r *recordedIDs) record(id string) string {
	r.seen[id] = true
	return id
}
