package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/asl"
)

// print is a digest of everything that can still matter: the table, the executions, the world outside and what is left of the story. Two
// states with one print go on alike. What was drawn at random counts by the place where it first stands, instants by how many minutes they lie
// ahead.
func (s *stage) print(function string, payload []byte) [16]byte {
	var all bytes.Buffer
	for _, it := range s.items.Items() {
		fmt.Fprintf(&all, "%s|%s|%s|%s|", it.PK, it.SK, it.Index, it.IndexSort)
		for _, k := range slices.Sorted(maps.Keys(it.Attrs)) {
			v := it.Attrs[k]
			fmt.Fprintf(&all, "%s=%s%d;", k, v.String(), v.Int())
		}
		all.Write(it.Body)
		all.WriteByte('\n')
	}
	fmt.Fprintf(&all, "%s %s timers=%d\n", function, payload, s.clock.Timers())
	for _, x := range s.machine.Engine.List(nil, "") { //nolint:staticcheck // it looks at nothing of the context
		fmt.Fprintf(&all, "%s %s %v\n", x.Name, x.Status, x.Status == asl.Running)
	}
	s.printStory(&all)
	sum := sha256.Sum256(s.canonical(all.Bytes()))
	return [16]byte(sum[:16])
}

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

var volatile = regexp.MustCompile(`[a-z2-7]{10,52}|[0-9A-Z]{26}|20\d\d-\d\d-\d\dT[0-9:.]+Z|\b1[78]\d{11}\b|~\d+`)

// canonical puts places for what was drawn, and minutes for instants.
func (s *stage) canonical(b []byte) []byte {
	places := map[string]string{}
	return volatile.ReplaceAllFunc(b, func(m []byte) []byte {
		text := string(m)
		switch {
		case s.drawn.all[text]:
			p, ok := places[text]
			if !ok {
				p = fmt.Sprintf("<%d>", len(places))
				places[text] = p
			}
			return []byte(p)
		case m[0] == '~':
			return []byte("~")
		}
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return s.ahead(at)
		}
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && len(text) == 13 {
			return s.ahead(time.UnixMilli(ms))
		}
		return m
	})
}

func (s *stage) ahead(at time.Time) []byte {
	left := at.Sub(s.clock.Now())
	if left <= 0 {
		return []byte("<past>")
	}
	return fmt.Appendf(nil, "<in %d min>", left.Round(time.Minute)/time.Minute)
}
