package web

import (
	"mime"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/clock"
)

// SignIn is the page of a console for who has not shown its token: it says what the token is and where it stands, and
// takes it in a form. All fields but File are required. Make its handler with Handler. Safe for concurrent use.
type SignIn struct {
	Is      func(token string) bool                      // reports whether a text is the token
	Welcome func(w http.ResponseWriter, r *http.Request) // answers who has shown it; it leads to the same path
	File    string                                       // where the token is kept, as people are told; "" = nobody is told
	Clock   clock.Clock
}

// tokenField is the field of the form, and the parameter of the address that is printed at the start.
const tokenField = "token"

// maxToken is the longest form of the page, in bytes.
const maxToken = 4 << 10

// signInPage is the view of signin.html.
type signInPage struct {
	frame
	Problem, File string
}

// signIn is a SignIn at work.
type signIn struct {
	*SignIn
	wrong *Limit
}

// Handler answers requests for the console's pages (ConsolePaths), and reports whether a request was for one: others
// are left to whoever asks. A POST with the token leads to the page that was asked for.
func (s *SignIn) Handler() func(w http.ResponseWriter, r *http.Request) bool {
	h := &signIn{SignIn: s, wrong: &Limit{Rate: wrongRate, Burst: wrongBurst, Clock: s.Clock}}
	return h.answer
}

func (s *signIn) answer(w http.ResponseWriter, r *http.Request) bool {
	if !isPage(r.URL.Path) {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		problem := ""
		if r.URL.Query().Has(tokenField) {
			problem = "The token in the address is not the one of this server."
		}
		s.show(w, r, problem)
	case http.MethodPost:
		token, ours := typedToken(w, r)
		switch {
		case !ours && !strings.Contains(r.Header.Get("Accept"), "text/html"):
			return false // a program's
		case !ours:
			s.write(w, http.StatusUnauthorized, "You are not signed in any more. Nothing was changed.")
		case s.Is(token):
			s.Welcome(w, r)
		default:
			s.show(w, r, "That is not the token of this server.")
		}
	default:
		return false
	}
	return true
}

// isPage reports whether people look at what is at a path.
func isPage(path string) bool {
	return path == "/" || strings.HasPrefix(path, runsPath) || strings.HasPrefix(path, approvalsPath)
}

// typedToken is the token of a form; ours is false where the request is another one.
func typedToken(w http.ResponseWriter, r *http.Request) (token string, ours bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		return "", false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxToken)
	if r.ParseForm() != nil || !r.PostForm.Has(tokenField) {
		return "", false
	}
	return strings.TrimSpace(r.PostForm.Get(tokenField)), true
}

// show answers with the page, and counts what was wrong. A right token is never refused for wrong ones.
func (s *signIn) show(w http.ResponseWriter, r *http.Request, problem string) {
	if problem != "" && !s.wrong.Take(sourceOf(r)) {
		w.Header().Set("Retry-After", "5")
		s.write(w, http.StatusTooManyRequests, "There were too many wrong tokens. Wait a moment, and copy the whole of it.")
		return
	}
	s.write(w, http.StatusUnauthorized, problem)
}

func (s *signIn) write(w http.ResponseWriter, status int, problem string) {
	html, err := linkPages.html("signin.html", signInPage{frame{Title: "Sign in · Countersign"}, problem, s.File})
	if err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="countersign"`)
	}
	(&server{}).write(w, status, html)
}
