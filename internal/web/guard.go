package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Guard protects a handler on a TCP port of a laptop, which every program and every web page of the machine can
// reach. It admits a request that has the token, names this machine as its host (which prevents DNS rebinding) and
// does not come from another site's page. Fields from Open on are optional.
type Guard struct {
	Token string // at least 32 random bytes, in letters and digits
	Port  string // the port of the listener
	Open  bool   // others may reach the port; any IP address and Name are then valid hosts
	Name  string // the host name of the listener; "" = an address
	// Public are other hosts, such as a tunnel's, under which the paths of IsPublic are reached and nothing else.
	Public []string
	// HasFormProof reports whether a POST contains, beside the cookie, a proof that its sender may act. The handler behind
	// the guard checks the proof. Nil = the cookie admits no POST.
	HasFormProof func(r *http.Request) bool
	// Fragment is added behind # to the redirect of AcceptToken; a browser sends it to no server. "" = none.
	Fragment string
	// SignIn answers an unauthenticated request with a page for people, and reports whether it did. Nil = always a
	// problem.
	SignIn func(w http.ResponseWriter, r *http.Request) bool
}

// tokenParameter is the query parameter in which a browser sends the token once, to get a cookie.
const tokenParameter = "token"

// Protect returns next behind the guard. It accepts the token as a bearer token. A GET with the token in the query is
// redirected to the same path with a cookie. The cookie is not the token: it only admits GET and what HasFormProof
// accepts, since a browser sends the cookies of localhost to every port. Refusals are problems: 403 for host and
// origin, else 401. Paths of IsPublic need no token. Safe for concurrent use.
func (g Guard) Protect(next http.Handler) http.Handler {
	cross, out := http.NewCrossOriginProtection(), &apiServer{Backend{Log: slog.New(slog.DiscardHandler)}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Frame-Options", "DENY")
		isNamed := func(host string) bool { return strings.EqualFold(host, r.Host) }
		public := IsPublic(r) && slices.ContainsFunc(g.Public, isNamed)
		if !public && !g.isOwnHost(r.Host) {
			out.writeProblem(w, r, problem(NotAllowed, "Host: got %.64q, want a name of this machine, such as localhost, "+
				"with port %s", r.Host, g.Port))
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
			out.writeProblem(w, r, problem(Unauthenticated, "want the token, as Authorization: Bearer, or from the link "+
				"that was printed at the start"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether a Host header names this machine. An address cannot be rebound, a name can.
func (g Guard) isOwnHost(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil { // no port means 80
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

// isAuthenticated reports whether the request has the token or the cookie. With a wrong bearer token the cookie does
// not count.
func (g Guard) isAuthenticated(r *http.Request) bool {
	if auth := r.Header.Get("Authorization"); auth != "" {
		scheme, token, _ := strings.Cut(auth, " ")
		return strings.EqualFold(scheme, "Bearer") && g.IsToken(token)
	}
	for _, c := range r.CookiesNamed(g.cookieName()) {
		looks := r.Method == http.MethodGet || r.Method == http.MethodHead ||
			r.Method == http.MethodPost && g.HasFormProof != nil && g.HasFormProof(r)
		if looks && g.Token != "" && equalSecrets(c.Value, g.cookieValue()) {
			return true
		}
	}
	return false
}

// cookieValue derives the cookie from the token. The token cannot be derived from the cookie.
func (g Guard) cookieValue() string {
	mac := hmac.New(sha256.New, []byte(g.Token))
	mac.Write([]byte("countersign cookie " + g.Port))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName contains the port, because browsers send a host's cookies to all of its ports.
func (g Guard) cookieName() string { return "countersign-" + g.Port }

// AcceptToken sets the cookie and redirects to the same path without the token.
func (g Guard) AcceptToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	q.Del(tokenParameter)
	to := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/") // never //host, which names another machine
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	if g.Fragment != "" {
		to += "#" + g.Fragment
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookieName(), Value: g.cookieValue(), Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
