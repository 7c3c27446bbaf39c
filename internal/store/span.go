package store

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// separator stands between the parts of a position. No key holds it, and it sorts before all they hold.
const separator = "\x00"

// Position is where an item stands in the order of its partition (its SK) or of its Index (IndexSort, PK and SK,
// separated by NUL). Positions compare as bytes.
func Position(it Item, index bool) string {
	if index {
		return it.IndexSort + separator + it.PK + separator + it.SK
	}
	return it.SK
}

// Span is what r asks for as positions: from <= position, and position < until unless until is "" (open). The cursor is
// accounted for; the span is empty when from >= until. It returns what CheckRange says, and ErrInvalid for a cursor
// that no page of such a range has.
func Span(r Range) (from, until string, err error) {
	if err := CheckRange(r); err != nil {
		return "", "", err
	}
	from = r.From
	if r.To != "" {
		until = r.To + "\x01" // above To and To+separator+anything, below every other string above To
	}
	if r.Cursor == "" {
		return from, until, nil
	}
	last, err := lastPosition(r)
	if err != nil {
		return "", "", err
	}
	if !r.Reverse {
		return max(from, last+separator), until, nil
	}
	if until == "" || last < until {
		until = last
	}
	return from, until, nil
}

func lastPosition(r Range) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	parts := 0
	if r.Index {
		parts = 2
	}
	if err != nil || strings.Count(string(b), separator) != parts {
		return "", fmt.Errorf("query %q: cursor %q is not from such a query: %w", r.PK, r.Cursor, ErrInvalid)
	}
	return string(b), nil
}

// Pager collects one Page for adapters that walk items in order.
type Pager struct {
	r    Range
	page Page
	size int
}

// NewPager makes a Pager for one Query of r.
func NewPager(r Range) *Pager { return &Pager{r: r} }

// Add offers the next item and reports whether it was taken. If not, the page is full, by Limit or MaxPage, and its
// cursor set: the walk ends.
func (p *Pager) Add(it Item) bool {
	n := Size(it)
	count := len(p.page.Items)
	if count > 0 && (count == p.r.Limit || p.size+n > MaxPage) {
		p.Skip(Position(p.page.Items[count-1], p.r.Index))
		return false
	}
	p.page.Items = append(p.page.Items, it)
	p.size += n
	return true
}

// Skip ends the page behind a position: of its last item, or of one that cannot be read.
func (p *Pager) Skip(position string) {
	p.page.Cursor = cursorAt(position)
}

func cursorAt(position string) string { return base64.RawURLEncoding.EncodeToString([]byte(position)) }

// Page is what was collected.
func (p *Pager) Page() Page { return p.page }
