package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
)

// callbackPath is the one path without a caller. The token in it names the call to answer.
const callbackPath = secrets.Path + "{token}"

// IsPublic reports whether a request authenticates itself by its path or signature, so that no handler in front needs
// to.
func IsPublic(r *http.Request) bool {
	for _, path := range []string{secrets.Path, link.Path} {
		if token, ok := strings.CutPrefix(r.URL.Path, path); ok && token != "" && !strings.Contains(token, "/") {
			return true
		}
	}
	return r.URL.Path == slackPath
}

// slackPath is where Slack posts signed interactions. functions/http and dev serve it.
const slackPath = "/slack/interactions"

// CallbackAnswer is the body of POST /v1/callbacks/{token}. Exactly one of the two is set; a null result is set.
type CallbackAnswer struct {
	Result json.RawMessage `json:"result,omitempty"` // a string stands for its text, anything else for its JSON
	Error  *string         `json:"error,omitempty"`
}

// Applied says whether an answer was applied: only the first one to a call is.
type Applied struct {
	Applied bool `json:"applied"`
}

// callbackPrincipal is the principal of answers by callback.
const callbackPrincipal = "callback"

// errCallbackNotFound is the error of every invalid token, whatever is wrong with it, and of a token whose run no
// longer exists.
func errCallbackNotFound() error { return problem(NoSuchPath, "there is nothing here") }

// receiveCallback applies the answer to the call that the token names.
func (s *server) receiveCallback(w http.ResponseWriter, r *http.Request, _ Caller) (int, any, error) {
	claim, err := s.readClaim(r)
	if err != nil {
		return 0, nil, err
	}
	var b CallbackAnswer
	if err := readBody(w, r, &b, false); err != nil {
		return 0, nil, err
	}
	if (b.Result == nil) == (b.Error == nil) {
		return 0, nil, invalidProblem("want exactly one of result and error")
	}
	given := runtime.Answer{Tenant: claim.Tenant, Run: claim.Run, Call: claim.Call, By: callbackPrincipal}
	if b.Error != nil {
		given.Content, given.IsError = *b.Error, true
	} else {
		given.Content = policy.ResultText(b.Result)
	}
	err = s.Inputs.Answer(r.Context(), given)
	switch {
	case errors.Is(err, store.ErrNoRun):
		return 0, nil, errCallbackNotFound()
	case err != nil && !errors.Is(err, runtime.ErrUnasked):
		return 0, nil, err
	}
	return http.StatusAccepted, Applied{Applied: err == nil}, nil
}

// readClaim verifies the token and returns its claim.
func (s *server) readClaim(r *http.Request) (secrets.Claim, error) {
	if s.Callbacks == nil {
		return secrets.Claim{}, errCallbackNotFound()
	}
	ring, err := s.Callbacks()
	switch {
	case err != nil:
		return secrets.Claim{}, err
	case ring == nil: // nothing was ever signed
		return secrets.Claim{}, errCallbackNotFound()
	}
	c, err := secrets.Read(ring, r.PathValue("token"), s.Clock.Now())
	switch {
	case errors.Is(err, secrets.ErrExpired):
		return secrets.Claim{}, problem(CallbackExpired, "the time to answer is over")
	case err != nil:
		return secrets.Claim{}, errCallbackNotFound()
	}
	return c, nil
}
