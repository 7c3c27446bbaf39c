package api

import (
	"errors"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// Unread is an item of a list that cannot be read, and hides no other. Whether it is one that was asked for, nobody can tell: it stands on the page on which
// it is met, whatever the list is narrowed to.
type Unread struct {
	Item string    `json:"item"` // a run, request or duty by its id, a grant as AGENT/TOOL#DIGEST, a server as AGENT/NAME, a repair as RUN/SEQUENCE#KIND#OF
	Why  UnreadWhy `json:"why"`
}

// UnreadWhy says why an item cannot be read.
type UnreadWhy string

// The reasons.
const (
	UnreadDamaged UnreadWhy = "damaged" // it is not what was written
	UnreadNewer   UnreadWhy = "newer"   // a newer version wrote it, and reads it
)

// UnreadBy says why an error of this package, or of a store, means that an item cannot be read; "" = it means something else.
func UnreadBy(err error) UnreadWhy {
	var p *Problem
	switch {
	case errors.As(err, &p) && p.Type == Damaged, errors.Is(err, store.ErrDamaged):
		return UnreadDamaged
	case errors.As(err, &p) && p.Type == NewerVersion, errors.Is(err, agent.ErrNewer):
		return UnreadNewer
	default:
		return ""
	}
}

// spared takes from a list's error what could not be read of it, and logs it. Its error is that of the whole list.
func (s *server) spared(r *http.Request, c Caller, err error) ([]Unread, error) {
	items, err := store.Spared(err)
	var unread []Unread
	for _, it := range items {
		unread = append(unread, s.unread(r, c, it))
	}
	return unread, err
}

// unread is an item that could not be read, which is logged.
func (s *server) unread(r *http.Request, c Caller, it store.UnreadItem) Unread {
	if s.Log != nil {
		s.Log.Warn("item left out of a list", "route", r.Method+" "+r.Pattern, "error", it.Err)
	}
	return Unread{Item: unreadName(c.Tenant, it.Key), Why: UnreadBy(it.Err)}
}

// unreadName is what the people of a tenant know an item by.
func unreadName(tenant string, k store.Key) string {
	kind, of, _ := strings.Cut(strings.TrimPrefix(k.PK, "T#"+tenant+"#"), "#")
	switch kind {
	case "RUN", "APPROVAL":
		return of
	case "DUTY": // of a side, until when, and the duty
		return k.SK[strings.LastIndexByte(k.SK, '#')+1:]
	default:
		return of + "/" + k.SK
	}
}
