package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// writeStoryState adds the world outside and what is left of the story.
func (s *simulation) writeStoryState(all *bytes.Buffer) {
	parts := map[string]*scriptedRun{s.run: s.scriptedRun}
	maps.Copy(parts, s.scriptedRuns)
	for _, run := range slices.Sorted(maps.Keys(parts)) {
		sr := parts[run]
		fmt.Fprintf(all, "part %s requests=%d heard=%v events=%d invoked=%d rerun=%v\n", run, len(sr.requests), sr.inputDuring, len(sr.effects.events), len(sr.effects.invokes), sr.effects.reruns)
		for _, name := range slices.Sorted(maps.Keys(sr.effects.executions)) {
			for _, e := range sr.effects.executions[name] {
				fmt.Fprintf(all, "%s %v %v %v %v\n", name, e.key, e.finished, e.void, e.resultLost)
			}
		}
	}
	fmt.Fprintf(all, "queue=%d moments=%d expiring=%s deployed=%v unforeseen=%v said=%v cancelled=%v gone=%v sweeps=%d acts=%d violations=%d\n", len(s.people.queued), len(s.people.triggered),
		s.people.expiring, s.redeployed, s.crashRequests, s.acceptedMessages, s.cancelled, s.callerLost, s.sweeps, len(s.intervened), len(s.violations))
	notes, _ := json.Marshal(s.notifications)
	all.Write(notes)
}

// canonicalize puts places for what was drawn, and minutes for instants.
func (s *simulation) canonicalize(b []byte) []byte {
	c := canonicalizer{stage: s, places: map[string]int{}, out: make([]byte, 0, len(b))}
	for len(b) > 0 {
		n := wordLen(b)
		if n == 0 {
			n = c.writeByte(b)
			b = b[n:]
			continue
		}
		b = b[c.writeWord(b, n):]
	}
	return c.out
}

// canonicalizer is what has been made of the bytes before.
type canonicalizer struct {
	stage  *simulation
	places map[string]int
	out    []byte
}

// wordLen is how many letters and digits b begins with.
func wordLen(b []byte) int {
	for i, c := range b {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return i
		}
	}
	return len(b)
}

// writeByte takes a byte that is in no word, and the number behind the mark of a request.
func (c *canonicalizer) writeByte(b []byte) int {
	c.out = append(c.out, b[0])
	n := 1
	for b[0] == requestMark[0] && n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

// writeWord takes a word of n bytes, or the instant that begins with it, and returns how much it took.
func (c *canonicalizer) writeWord(b []byte, n int) int {
	word := b[:n]
	switch {
	case n >= 10 && c.stage.randomIDs.seen[string(word)]:
		p, ok := c.places[string(word)]
		if !ok {
			p = len(c.places)
			c.places[string(word)] = p
		}
		c.out = fmt.Appendf(c.out, "<%d>", p)
		return n
	case n == 13 && word[0] == '1':
		if ms, err := strconv.ParseInt(string(word), 10, 64); err == nil {
			c.out = append(c.out, c.stage.relativeTime(time.UnixMilli(ms))...)
			return n
		}
	case n == 4 && word[0] == '2' && len(b) > 4 && b[4] == '-':
		if z := bytes.IndexByte(b[:min(len(b), len(time.RFC3339Nano))], 'Z'); z > 0 {
			if at, err := time.Parse(time.RFC3339Nano, string(b[:z+1])); err == nil {
				c.out = append(c.out, c.stage.relativeTime(at)...)
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
