package api

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/run"
)

// Event is one event of a run's journal. Its data is the stored form, which never changes its meaning.
type Event struct {
	ID   string          `json:"id"` // seq.index
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// Fact decodes the event. A type that this build does not know is an error.
func (e Event) Fact() (run.Event, error) {
	return run.UnmarshalEvent([]byte(`{` + strconv.Quote(e.Type) + `:` + string(e.Data) + `}`))
}

// position is a place in a journal: behind the event of that index.
type position struct {
	seq   int64
	index int
}

const afterEntry = 1 << 30 // index behind all events of an entry

// journalStart is before all events.
var journalStart = position{seq: -1, index: afterEntry}

func (p position) String() string { return fmt.Sprintf("%d.%d", p.seq, p.index) }

// before reports whether p is before the event of that entry and index.
func (p position) before(seq int64, index int) bool {
	return seq > p.seq || seq == p.seq && index > p.index
}

// readPosition reads SEQ, which is behind a whole entry, or SEQ.INDEX.
func readPosition(s string) (position, error) {
	seq, index, one := strings.Cut(s, ".")
	p := position{index: afterEntry}
	var ok bool
	if p.seq, ok = parseInteger(seq); !ok || p.seq < -1 {
		return p, fmt.Errorf("got %.64q, want SEQ or SEQ.INDEX", s)
	}
	if one {
		i, ok := parseInteger(index)
		if !ok || i < 0 || i > math.MaxInt {
			return p, fmt.Errorf("got %.64q, want SEQ or SEQ.INDEX", s)
		}
		p.index = int(i)
	}
	return p, nil
}
