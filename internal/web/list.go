package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/store"
)

// Bounds of pages.
const (
	maxListPage = 200
	defaultPage = 50
	// maxStorePages is how many pages of the store are read for one page of results. A filtered page may therefore be
	// short or empty and still have a cursor.
	maxStorePages = 20
	// maxPageBytes is the most bytes of a page of several elements. A function's answer may have 4.5 MB.
	maxPageBytes = 4_000_000
)

// Page is a page of a list.
type Page[T any] struct {
	Items  []T    `json:"items"`
	Cursor string `json:"cursor,omitempty"` // of the next page; "" = there is no more now
}

// fetch reads at most limit elements of a list behind a cursor, "" = from the start. It may leave out elements. next is
// "" at the end. The error of a cursor that no page gave is store.ErrInvalid.
type fetch[T any] func(limit int, cursor string) (items []T, next string, err error)

// readPage answers a request for a list. A page that would have too many bytes is read again with half of its elements.
func readPage[T any](r *http.Request, f fetch[T]) (int, any, error) {
	q := r.URL.Query()
	n, err := readLimit(q)
	if err != nil {
		return 0, nil, err
	}
	for {
		p, err := readElements(n, q.Get("cursor"), f)
		if err != nil {
			return 0, nil, err
		}
		body, err := jsonx.MarshalVerbatim(p)
		if err != nil || len(body) <= maxPageBytes || len(p.Items) <= 1 {
			return http.StatusOK, p, err
		}
		n = len(p.Items) / 2
	}
}

func readElements[T any](n int, cursor string, f fetch[T]) (Page[T], error) {
	p := Page[T]{Items: []T{}, Cursor: cursor}
	for looks := 0; len(p.Items) < n && looks < maxStorePages; looks++ {
		items, next, err := f(n-len(p.Items), p.Cursor)
		if p.Cursor != "" && errors.Is(err, store.ErrInvalid) {
			err = badCursor(p.Cursor)
		}
		if err != nil {
			return p, err
		}
		p.Items, p.Cursor = append(p.Items, items...), next
		if next == "" {
			break
		}
	}
	return p, nil
}

// convert returns a list whose elements are made from those of another list.
func convert[S, T any](list fetch[S], as func(S) T) fetch[T] {
	return func(limit int, cursor string) (all []T, next string, err error) {
		part, next, err := list(limit, cursor)
		for _, one := range part {
			all = append(all, as(one))
		}
		return all, next, err
	}
}

func badCursor(cursor string) error {
	return invalidProblem("cursor: got %.64q, want one that a page gave", cursor)
}

func readLimit(q url.Values) (int, error) {
	if !q.Has("limit") {
		return defaultPage, nil
	}
	n, ok := parseInteger(q.Get("limit"))
	if !ok || n < 1 || n > maxListPage {
		return 0, invalidProblem("limit: got %.64q, want 1 to %d", q.Get("limit"), maxListPage)
	}
	return int(n), nil
}

// parseInteger reads an integer in its canonical form: without a plus or leading zeros.
func parseInteger(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// fetchFrom reads a complete list. The cursor is the number of elements before the page.
func fetchFrom[T any](all []T) fetch[T] {
	return func(limit int, cursor string) ([]T, string, error) {
		at, ok := int64(0), true
		if cursor != "" {
			at, ok = parseInteger(cursor)
		}
		if !ok || at < 0 {
			return nil, "", store.ErrInvalid
		}
		part := all[min(at, int64(len(all))):]
		if len(part) <= limit {
			return part, "", nil
		}
		return part[:limit], strconv.FormatInt(at+int64(limit), 10), nil
	}
}
