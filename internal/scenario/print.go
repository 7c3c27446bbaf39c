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

// printStory adds the world outside and what is left of the story.
func (s *stage) printStory(all *bytes.Buffer) {
	parts := map[string]*part{s.run: s.part}
	maps.Copy(parts, s.parts)
	for _, run := range slices.Sorted(maps.Keys(parts)) {
		p := parts[run]
		fmt.Fprintf(all, "part %s requests=%d heard=%v events=%d invoked=%d rerun=%v\n", run, len(p.requests), p.heard, len(p.ledger.events), len(p.ledger.invoked), p.ledger.rerun)
		for _, name := range slices.Sorted(maps.Keys(p.ledger.entries)) {
			for _, e := range p.ledger.entries[name] {
				fmt.Fprintf(all, "%s %v %v %v %v\n", name, e.execution, e.done, e.void, e.lost)
			}
		}
	}
	fmt.Fprintf(all, "queue=%d moments=%d expiring=%s deployed=%v unforeseen=%v said=%v cancelled=%v gone=%v sweeps=%d acts=%d violations=%d\n", len(s.cast.queue), len(s.cast.moments),
		s.cast.expiring, s.deployed, s.unforeseen, s.said, s.cancelled, s.gone, s.sweeps, len(s.acted), len(s.violations))
	notes, _ := json.Marshal(s.notified)
	all.Write(notes)
}

// canonical puts places for what was drawn, and minutes for instants.
func (s *stage) canonical(b []byte) []byte {
	c := canonical{stage: s, places: map[string]int{}, out: make([]byte, 0, len(b))}
	for len(b) > 0 {
		n := wordLen(b)
		if n == 0 {
			n = c.mark(b)
			b = b[n:]
			continue
		}
		b = b[c.word(b, n):]
	}
	return c.out
}

// canonical is what has been made of the bytes before.
type canonical struct {
	stage  *stage
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

// mark takes a byte that is in no word, and the number behind the mark of a request.
func (c *canonical) mark(b []byte) int {
	c.out = append(c.out, b[0])
	n := 1
	for b[0] == mark[0] && n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

// word takes a word of n bytes, or the instant that begins with it, and returns how much it took.
func (c *canonical) word(b []byte, n int) int {
	word := b[:n]
	switch {
	case n >= 10 && c.stage.drawn.all[string(word)]:
		p, ok := c.places[string(word)]
		if !ok {
			p = len(c.places)
			c.places[string(word)] = p
		}
		c.out = fmt.Appendf(c.out, "<%d>", p)
		return n
	case n == 13 && word[0] == '1':
		if ms, err := strconv.ParseInt(string(word), 10, 64); err == nil {
			c.out = append(c.out, c.stage.ahead(time.UnixMilli(ms))...)
			return n
		}
	case n == 4 && word[0] == '2' && len(b) > 4 && b[4] == '-':
		if z := bytes.IndexByte(b[:min(len(b), len(time.RFC3339Nano))], 'Z'); z > 0 {
			if at, err := time.Parse(time.RFC3339Nano, string(b[:z+1])); err == nil {
				c.out = append(c.out, c.stage.ahead(at)...)
				return z + 1
			}
		}
	}
	c.out = append(c.out, word...)
	return n
}

func (s *stage) ahead(at time.Time) []byte {
	left := at.Sub(s.clock.Now())
	if left <= 0 {
		return []byte("<past>")
	}
	return fmt.Appendf(nil, "<in %d min>", left.Round(time.Minute)/time.Minute)
}
