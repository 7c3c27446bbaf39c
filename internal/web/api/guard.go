package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Guard stands before a handler on a TCP port of a laptop, which every program of the machine and every page in its browser can
// reach. It lets a request through that shows the token, calls the machine by a name of its own (a page of a rebound name does not)
// and was not sent by another site's page. All fields but those from Open on are required.
type Guard struct {
	Token string // at least 32 random bytes, in letters and digits
	Port  string // the port that is listened on
	Open  bool   // others may reach the port: any IP address, and Name, are names of this machine, too
	Name  string // the host name that is listened on; "" = it is an address
	// ProvesItself reports whether a POST shows, beside the cookie, what proves that its sender may act: what is behind the guard judges that. It is let
	// through with the cookie. Nil = none does.
	HasFormProof func(r *http.Request) bool
	// Fragment is what a browser that has shown the token is sent on with, behind #: it keeps that to itself, and shows it to no other port. "" = nothing.
	Fragment string
	// SignIn answers who has not shown the token in the guard's place, and reports whether it did: with a page for people.
	// Nil = nobody is answered but with a problem.
	SignIn func(w http.ResponseWriter, r *http.Request) bool
}

// tokenParameter is the query parameter that a browser shows the token in, once, for a cookie.
const tokenParameter = "token"

// Protect is next behind the guard. The token is taken as a bearer token. A GET with it in the query parameter token is answered with a
// cookie and the way to the same path without it. The cookie is for looking: it is not the token, and opens GET and what ProvesItself alone, since a
// browser shows the cookies of localhost to whatever listens on any of its ports. What is refused gets a problem: 403 of host and origin, else
// 401. What shows all that it has to in its path needs no token (Openly). Safe for concurrent use.
func (g Guard) Protect(next http.Handler) http.Handler {
	cross, out := http.NewCrossOriginProtection(), &server{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		if !g.isOwnHost(r.Host) {
			out.writeProblem(w, r, problem(NotAllowed, "Host: got %.64q, want a name of this machine, such as localhost, with port %s", r.Host, g.Port))
			return
		}
		if err := cross.Check(r); err != nil {
			out.writeProblem(w, r, problem(NotAllowed, "%s %s: sent by a page of another origin", r.Method, r.URL.Path))
			return
		}
		if r.Method == http.MethodGet && r.URL.Query().Has(tokenParameter) && g.IsToken(r.URL.Query().Get(tokenParameter)) {
			g.AcceptToken(w, r)
			return
		}
		if !g.isAuthenticated(r) && !IsPublic(r) {
			if g.SignIn != nil && g.SignIn(w, r) {
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="countersign"`)
			out.writeProblem(w, r, problem(Unauthenticated, "want the token, as Authorization: Bearer, or from the link that was printed at the start"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// setSecurityHeaders tells browsers to keep answers to themselves.
func setSecurityHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
}

// isOwnHost reports whether a Host header names this machine. Addresses cannot be rebound, names can.
func (g Guard) isOwnHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil { // without a port, which is 80
		name, port = strings.Trim(host, "[]"), "80"
	}
	if port != g.Port {
		return false
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.IsLoopback() || g.Open
	}
	return strings.EqualFold(name, "localhost") || g.Open && g.Name != "" && strings.EqualFold(name, g.Name)
}

// IsToken reports whether a text is the token.
func (g Guard) IsToken(token string) bool {
	return g.Token != "" && equalSecrets(token, g.Token)
}

func equalSecrets(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// isAuthenticated reports whether the request shows the token. A bearer token that is wrong is not made good by a cookie.
func (g Guard) isAuthenticated(r *http.Request) bool {
	if auth := r.Header.Get("Authorization"); auth != "" {
		scheme, token, _ := strings.Cut(auth, " ")
		return strings.EqualFold(scheme, "Bearer") && g.IsToken(token)
	}
	for _, c := range r.CookiesNamed(g.cookieName()) {
		looks := r.Method == http.MethodGet || r.Method == http.MethodPost && g.HasFormProof != nil && g.HasFormProof(r)
		if looks && g.Token != "" && equalSecrets(c.Value, g.cookieValue()) {
			return true
		}
	}
	return false
}

// cookieValue is what the cookie holds. It follows from the token, and the token does not follow from it.
func (g Guard) cookieValue() string {
	mac := hmac.New(sha256.New, []byte(g.Token))
	mac.Write([]byte("countersign cookie " + g.Port))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName is the cookie's name. Browsers do not tell the ports of a host apart, so the name does.
func (g Guard) cookieName() string { return "countersign-" + g.Port }

// AcceptToken answers who has shown the token: with a cookie in its place, and the way to the same path without it.
func (g Guard) AcceptToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del(tokenParameter)
	to := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/") // never //host, which would be another machine's
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	if g.Fragment != "" {
		to += "#" + g.Fragment
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookieName(), Value: g.cookieValue(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
