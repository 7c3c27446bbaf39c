package api

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/people/person"
)

// DutyForm is the body of POST /v1/me/duties: who decides in the caller's place, and when.
type DutyForm struct {
	To    string     `json:"to"`             // user:ben
	From  *time.Time `json:"from,omitempty"` // nil = now
	Until time.Time  `json:"until"`          // it holds before then
	Note  string     `json:"note,omitempty"`
}

// DutyList are the duties that the caller has given and was given, less those that are over; those that end first before the others.
type DutyList struct {
	Given    []person.Duty `json:"given"`
	Received []person.Duty `json:"received"`
	Unread   []Unread      `json:"unread,omitempty"`
}

var dutyPattern = regexp.MustCompile(`^d[a-z2-7]{25}$`)

// duties are those on record here.
func (s *server) duties() person.Duties { return person.Duties{Table: s.Table, Directory: s.People} }

// showPreferences is what the caller has said of how they are told.
func (s *server) showPreferences(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	p, err := person.ReadPreferences(r.Context(), s.Table, c.Tenant, c.Principal.ID)
	return http.StatusOK, p, err
}

// preferencesForm is the body of PUT /v1/me/preferences: null and a list are told from nothing.
type preferencesForm struct {
	Notify json.RawMessage `json:"notify"`
}

// keepPreferences keeps the caller's own.
func (s *server) keepPreferences(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var form preferencesForm
	if err := body(w, r, &form, false); err != nil {
		return 0, nil, err
	}
	var p person.Preferences
	if form.Notify == nil || json.Unmarshal(form.Notify, &p.Notify) != nil {
		return 0, nil, invalid("notify: want a list of email and slack, or null")
	}
	err := person.WritePreferences(r.Context(), s.Table, c.Tenant, c.Principal, p)
	return http.StatusOK, p, err
}

func (s *server) listDuties(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	list, now := DutyList{Given: []person.Duty{}, Received: []person.Duty{}}, s.Clock.Now()
	given, err := s.duties().Given(r.Context(), c.Tenant, c.Principal.ID, now)
	unread, err := s.spared(r, c, err)
	if err != nil {
		return 0, nil, err
	}
	received, err := s.duties().Received(r.Context(), c.Tenant, c.Principal.ID, now)
	others, err := s.spared(r, c, err)
	if err != nil {
		return 0, nil, err
	}
	list.Unread = slices.Concat(unread, others)
	list.Given, list.Received = append(list.Given, given...), append(list.Received, received...)
	return http.StatusOK, list, nil
}

// giveDuty lets another decide in the caller's place. The same again is answered with the one there is.
func (s *server) giveDuty(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var f DutyForm
	if err := body(w, r, &f, false); err != nil {
		return 0, nil, err
	}
	d := person.Duty{To: f.To, Until: f.Until, Note: f.Note}
	if f.From != nil {
		if f.From.IsZero() {
			return 0, nil, invalid("from: got %s, want a time", f.From.Format(time.RFC3339))
		}
		d.From = *f.From
	}
	given, err := s.duties().Give(r.Context(), c.Tenant, c.Principal, d, s.Clock.Now())
	return http.StatusCreated, given, err
}

// endDuty ends a duty that the caller has given or was given.
func (s *server) endDuty(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	id := r.PathValue("id")
	if !dutyPattern.MatchString(id) {
		return 0, nil, problem(DutyNotFound, "end duty %.64q: no such duty", id)
	}
	if err := s.duties().End(r.Context(), c.Tenant, c.Principal, id, s.Clock.Now()); err != nil {
		return 0, nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return 0, nil, nil
}
