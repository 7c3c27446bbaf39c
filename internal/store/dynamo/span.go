package dynamo

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/store"
)

// span is a range with its cursor, the position after which it goes on, read.
type span struct {
	r     store.Range
	after *store.Item // keys only; nil at the start
}

// spanOf checks the range and reads its cursor. A cursor from outside the bounds, which DynamoDB would refuse, either
// has no effect or leaves nothing; see empty.
func spanOf(r store.Range) (span, error) {
	if _, _, err := store.Span(r); err != nil {
		return span{}, err
	}
	s := span{r: r}
	if r.Cursor == "" {
		return s, nil
	}
	// Take a cursor, whose form store.Span has checked, apart into the keys of the store.Position it holds.
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if err != nil {
		return span{}, fmt.Errorf("query %q: cursor %q: %w", r.PK, r.Cursor, store.ErrInvalid)
	}
	last := store.Item{Key: store.Key{PK: r.PK, SK: string(b)}}
	if parts := strings.Split(string(b), "\x00"); r.Index && len(parts) == 3 {
		last = store.Item{IndexSort: parts[0], Key: store.Key{PK: parts[1], SK: parts[2]}}
	}
	if err := store.CheckKey(last.Key); err != nil || r.Index && last.IndexSort == "" {
		return span{}, fmt.Errorf("query %q: cursor %q names no item: %w", r.PK, r.Cursor, store.ErrInvalid)
	}

	if before := r.From != "" && s.sort(last) < r.From; before && !r.Reverse {
		return s, nil
	}
	if behind := r.To != "" && s.sort(last) > r.To; behind && r.Reverse {
		return s, nil
	}
	s.after = &last
	return s, nil
}

// empty reports that nothing can be in the range: its bounds are crossed, or its cursor has passed the last of them.
func (s span) empty() bool {
	if s.r.To != "" && s.r.From > s.r.To {
		return true
	}
	if s.after == nil {
		return false
	}
	if s.r.Reverse {
		return s.sort(*s.after) < s.r.From
	}
	return s.r.To != "" && s.sort(*s.after) > s.r.To
}

func (s span) sort(it store.Item) string {
	if s.r.Index {
		return it.IndexSort
	}
	return it.SK
}

// startKey is the ExclusiveStartKey: the keys of the last item before, which need not exist any more.
func (s span) startKey() attributes {
	if s.after == nil {
		return nil
	}
	k := encodeKey(s.after.Key)
	if s.r.Index {
		k[store.NameIndex] = str(s.r.PK)
		k[store.NameIndexSort] = str(s.after.IndexSort)
	}
	return k
}

// cursorAt is the cursor of a page that ended with it, as store.Pager makes it and store.Span reads it.
func cursorAt(it store.Item, index bool) string {
	return base64.RawURLEncoding.EncodeToString([]byte(store.Position(it, index)))
}

// page collects what a Query gave. DynamoDB ends a page by stored bytes, the port by those of the items themselves:
// where bodies were compressed, items that do not fit are left for the next page.
func page(r store.Range, stored []attributes, last attributes) (store.Page, error) {
	pager := store.NewPager(r)
	for _, s := range stored {
		it, err := decode(s)
		if err != nil {
			at := store.Item{Key: store.Key{PK: textOf(s[store.NamePK]), SK: textOf(s[store.NameSK])}, IndexSort: textOf(s[store.NameIndexSort])}
			pager.Skip(store.Position(at, r.Index))
			return pager.Page(), err
		}
		if !pager.Add(it) {
			return pager.Page(), nil
		}
	}
	p := pager.Page()
	if len(last) == 0 {
		return p, nil
	}
	it, err := decode(last)
	if err != nil {
		return store.Page{}, err
	}
	p.Cursor = cursorAt(it, r.Index)
	return p, nil
}
