package web

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
)

// mayChangePeople refuses whoever is not of the group that may see and change the people of a deployment.
func (s *apiServer) mayChangePeople(c Caller) error {
	switch {
	case s.PeopleAdmins == "":
		return problem(NotAllowed, "nobody may see or change people here: want PeopleAdmins, or countersign people import")
	case !policy.MayDecide([]string{s.PeopleAdmins}, c.Principal):
		return problem(NotAllowed, "see or change people as %s: want a member of %s", c.Principal.ID, s.PeopleAdmins)
	}
	return nil
}

func (s *apiServer) listPeople(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	list, err := people.List(r.Context(), s.Table, c.Tenant)
	if err != nil {
		return 0, nil, err
	}
	return readPage(r, fetchFrom(list))
}

// putPerson adds somebody, or replaces what is known of them.
func (s *apiServer) putPerson(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	form, err := readBody[map[string]json.RawMessage](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	body, err := json.Marshal(form)
	if err != nil {
		return 0, nil, err
	}
	return s.changePerson(r, c, body)
}

// removePerson takes somebody out, also one who was never in: within a minute they can do nothing.
func (s *apiServer) removePerson(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	return s.changePerson(r, c, json.RawMessage("null"))
}

func (s *apiServer) changePerson(r *http.Request, c Caller, form json.RawMessage) (status int, body any, err error) {
	id := r.PathValue("id")
	err = people.Put(r.Context(), s.Table, c.Tenant, id, form)
	var wrong *people.ReadError
	switch {
	case errors.As(err, &wrong):
		return 0, nil, invalidProblem("%s: %s", wrong.Key(), wrong.Text)
	case err != nil:
		return 0, nil, err
	}
	s.Log.Info("people changed", "tenant", c.Tenant, "person", id, "by", c.Principal.ID)
	return http.StatusNoContent, nil, nil
}
