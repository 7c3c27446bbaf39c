package web

import (
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/clock"
)

// SignIn is the console's page for a visitor without the token. It says where the token is stored and accepts it in a
// form. All fields but File are required. Safe for concurrent use.
type SignIn struct {
	IsToken func(token string) bool                      // reports whether it is the token
	Accept  func(w http.ResponseWriter, r *http.Request) // accepts the visitor and redirects to the same path
	File    string                                       // shown path of the token; "" = not shown
	Clock   clock.Clock

	wrongTokens *Limit
}

// tokenField is the form field, and the parameter of the printed address.
const tokenField = "token"

// maxToken is the longest form of the page, in bytes.
const maxToken = 4 << 10

// signInPage is the view of signin.html.
type signInPage struct {
	frame
	Problem, File string
}

// Handler returns a function that answers requests for pages, and reports whether it has. A POST with the
// token redirects to the requested page.
func (s *SignIn) Handler() func(w http.ResponseWriter, r *http.Request) bool {
	s.wrongTokens = &Limit{Rate: wrongRate, Burst: wrongBurst, Clock: s.Clock}
	return s.handle
}

func (s *SignIn) handle(w http.ResponseWriter, r *http.Request) bool {
	path := r.URL.Path
	if strings.HasPrefix(path, APIPath) || path == scriptPath { // no page for people
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		problem := ""
		if r.URL.Query().Has(tokenField) {
			problem = "The token in the address is not the one of this server."
		}
		s.refuseToken(w, r, problem)
	case http.MethodPost:
		token, ours := readToken(w, r)
		switch {
		case !ours && !strings.Contains(r.Header.Get("Accept"), "text/html"):
			return false // a request of a program
		case !ours:
			s.writePage(w, http.StatusUnauthorized, "You are not signed in any more. Nothing was changed.")
		case s.IsToken(token):
			s.Accept(w, r)
		default:
			s.refuseToken(w, r, "That is not the token of this server.")
		}
	default:
		return false
	}
	return true
}

// readToken returns the token of the form; ours is false for any other request.
func readToken(w http.ResponseWriter, r *http.Request) (token string, ours bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxToken)
	if r.ParseForm() != nil || !r.PostForm.Has(tokenField) {
		return "", false
	}
	return strings.TrimSpace(r.PostForm.Get(tokenField)), true
}

// refuseToken shows the page with a problem and counts it. A correct token is never rate-limited.
func (s *SignIn) refuseToken(w http.ResponseWriter, r *http.Request, problem string) {
	if problem != "" && !s.wrongTokens.Allow(clientAddress(r)) {
		w.Header().Set("Retry-After", "5")
		s.writePage(w, http.StatusTooManyRequests,
			"There were too many wrong tokens. Wait a moment, and copy the whole of it.")
		return
	}
	s.writePage(w, http.StatusUnauthorized, problem)
}

func (s *SignIn) writePage(w http.ResponseWriter, status int, problem string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="countersign"`)
	}
	linkServer().writeView(w, status, "signin.html", signInPage{frame{Title: "Sign in · Countersign"}, problem, s.File})
}
