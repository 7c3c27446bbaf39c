package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/ids"
)

// recordBoundary records the state in which a handler begins alone, and reports whether the simulation ends there
// because the state is known.
func (s *simulation) recordBoundary(function string, payload []byte) bool {
	isAlone := s.faults.LiveInvocations() == 0 && s.faults.IsSpent() && len(s.intervened) == len(s.interventions)
	if s.isKnownState == nil || !isAlone {
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
	s.writeScriptState(&all)
	sum := sha256.Sum256(s.canonicalize(all.Bytes()))
	fingerprint := [16]byte(sum[:16])
	s.boundaries = append(s.boundaries, Boundary{Call: len(s.faults.Calls()) + 1, Fingerprint: fingerprint})
	if s.isKnownState(fingerprint) {
		s.pruned = true
		s.endSignal.Notify()
	}
	return s.pruned
}

// writeScriptState writes the effect logs and what is left of the script.
func (s *simulation) writeScriptState(all *bytes.Buffer) {
	parts := map[string]*scriptedRun{s.run: s.scriptedRun}
	maps.Copy(parts, s.scriptedRuns)
	for _, run := range slices.Sorted(maps.Keys(parts)) {
		sr := parts[run]
		fmt.Fprintf(all, "run %s requests=%d input=%v events=%d invoked=%d rerun=%v\n",
			run, len(sr.requests), sr.inputDuring, len(sr.effects.events), len(sr.effects.invokes), sr.effects.reruns)
		for _, name := range slices.Sorted(maps.Keys(sr.effects.executions)) {
			for _, e := range sr.effects.executions[name] {
				fmt.Fprintf(all, "%s %v %v %v %v\n", name, e.key, e.finished, e.void, e.resultLost)
			}
		}
	}
	fmt.Fprintf(all, "queued=%d triggered=%d expiring=%s redeployed=%v crash=%v accepted=%v cancelled=%v lost=%v sweeps=%d interventions=%d violations=%d\n",
		len(s.people.queued), len(s.people.triggered), s.people.expiring, s.redeployed, s.crashRequests, s.acceptedMessages,
		s.cancelled, s.callerLost, s.sweeps, len(s.intervened), len(s.violations))
	notes, _ := json.Marshal(s.notifications)
	all.Write(notes)
}

// canonicalize replaces random ids by their positions, and instants by the minutes until then.
func (s *simulation) canonicalize(b []byte) []byte {
	c := canonicalizer{sim: s, places: map[string]int{}, out: make([]byte, 0, len(b))}
	for len(b) > 0 {
		n := bytes.IndexFunc(b, func(c rune) bool {
			return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		})
		if n < 0 {
			n = len(b)
		}
		if n == 0 {
			c.out = append(c.out, b[0])
			// The number after a request mark is dropped.
			for n = 1; b[0] == requestMark[0] && n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
			}
			b = b[n:]
			continue
		}
		b = b[c.writeWord(b, n):]
	}
	return c.out
}

// canonicalizer holds the canonical form of the bytes so far.
type canonicalizer struct {
	sim    *simulation
	places map[string]int
	out    []byte
}

// writeWord writes the word of n bytes, or the instant that begins with it, and returns how many bytes it read.
func (c *canonicalizer) writeWord(b []byte, n int) int {
	word := b[:n]
	switch {
	case n >= 10 && c.sim.randomIDs.seen[string(word)]:
		p, ok := c.places[string(word)]
		if !ok {
			p = len(c.places)
			c.places[string(word)] = p
		}
		c.out = fmt.Appendf(c.out, "<%d>", p)
		return n
	case n == 13 && word[0] == '1':
		if ms, err := strconv.ParseInt(string(word), 10, 64); err == nil {
			c.out = append(c.out, c.sim.relativeTime(time.UnixMilli(ms))...)
			return n
		}
	case n == 4 && word[0] == '2' && len(b) > 4 && b[4] == '-':
		if z := bytes.IndexByte(b[:min(len(b), len(time.RFC3339Nano))], 'Z'); z > 0 {
			if at, err := time.Parse(time.RFC3339Nano, string(b[:z+1])); err == nil {
				c.out = append(c.out, c.sim.relativeTime(at)...)
				return z + 1
			}
		}
	}
	c.out = append(c.out, word...)
	return n
}

func (s *simulation) relativeTime(at time.Time) []byte {
	left := at.Sub(s.clock.Now())
	if left <= 0 {
		return []byte("<past>")
	}
	return fmt.Appendf(nil, "<in %d min>", left.Round(time.Minute)/time.Minute)
}

// recordedIDs remembers the random ids that it returned, so that canonicalize finds them.
type recordedIDs struct {
	*ids.Source
	seen map[string]bool
}

func (r *recordedIDs) Writer() string { return r.record(r.Source.Writer()) }
func (r *recordedIDs) Token() string  { return r.record(r.Source.Token()) }
func (r *recordedIDs) Key() string    { return r.record(r.Source.Key()) }

func (r *recordedIDs) record(id string) string {
	r.seen[id] = true
	return id
}
