package web

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/secrets"
)

// OIDC signs people in by an OpenID Connect provider: the authorization code with PKCE, state and nonce. It stores
// nothing. A sign-in that is under way and the session that comes of it are cookies, which keys seal that are derived
// from those of Ring. Fields are required unless they say otherwise. Safe for concurrent use.
type OIDC struct {
	Issuer   string // from which the provider's addresses are discovered
	ClientID string
	Base     string                                // address of the pages for people, as https://approvals.example.com
	Secret   func(context.Context) (string, error) // of the client; nil = a public client
	Ring     func() (*secrets.Ring, error)
	// Identify returns whom the claims of an ID token name. People are shown the details of a *Problem. A claim that
	// is no text is JSON.
	Identify func(claims map[string]string) (Caller, error)
	// Admit refuses whoever may not be here any more, at the sign-in and at each request of a session; see Identify for
	// its errors.
	Admit  func(ctx context.Context, who Caller) error
	IDs    *clock.IDs
	Clock  clock.Clock
	Client *http.Client // for the provider
	Log    *slog.Logger // of failed sign-ins, without content; nil = none

	mu       sync.Mutex
	provider *oidc.Provider // nil = not discovered yet
}

// Session is a person who has signed in.
type Session struct {
	Caller
	Key     string // proves that a form was made for this session
	Expires time.Time
}

// pendingSignIn is a sign-in that is under way at the provider, which sends it back as the state. So a browser may have
// several, one for each of its windows.
type pendingSignIn struct {
	Browser, Nonce, Verifier string
	To                       string // the path that the person comes back to
	Expires                  time.Time
}

// The lives of the cookies. The groups of a session do not change.
const (
	sessionLife = 4 * time.Hour
	pendingLife = 10 * time.Minute
)

// The cookies. Their prefix makes browsers take them by https from this very host alone.
const (
	sessionCookie = "__Host-countersign"
	pendingCookie = "__Host-countersign-signin" // tells the browser that begins a sign-in from others
	maxCookie     = 3800                        // characters; browsers keep 4096 with the name and the attributes
)

// The paths of the sign-in.
const (
	signInPath   = "/signin"
	returnPath   = "/signin/callback"
	signOutPath  = "/signout"
	toParameter  = "to"
	asParameter  = "as"
	somebodyElse = "somebody-else" // of asParameter: the provider asks anew who it is

	stateParameter = "state" // of OAuth
)

// SignInPaths returns the paths that an OIDC serves.
func SignInPaths() []string { return []string{signInPath, returnPath, signOutPath} }

// signInAddress returns the address at which a visitor of a page signs in.
func signInAddress(path string, anew bool) string {
	q := url.Values{toParameter: {path}}
	if anew {
		q.Set(asParameter, somebodyElse)
	}
	return signInPath + "?" + q.Encode()
}

// ServeHTTP serves SignInPaths.
func (o *OIDC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET " + signInPath:
		o.begin(w, r)
	case "GET " + returnPath:
		o.finish(w, r)
	case "POST " + signOutPath:
		o.signOut(w, r)
	default:
		o.writePage(w, http.StatusNotFound, "There is no such page", "The address is not one of ours.", "")
	}
}

// Protect serves a person who has signed in by serve, and asks anybody else to sign in.
func (o *OIDC) Protect(serve func(Session) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := o.Session(r)
		switch {
		case s != nil:
			serve(*s).ServeHTTP(w, r)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			o.writePage(w, http.StatusUnauthorized, "Sign in", "People decide here what agents may do. Sign in to see runs "+
				"and requests. To open a request that you were told of, you can use the link in the message as well.",
				r.URL.RequestURI())
		default:
			o.writePage(w, http.StatusUnauthorized, "You are not signed in any more",
				"Nothing was changed. Sign in, and answer again.", "/")
		}
	})
}

// Session returns the session of a request; nil = there is none, or it is of somebody who is not admitted any more. A
// nil OIDC has none.
func (o *OIDC) Session(r *http.Request) *Session {
	var s Session
	if o == nil || !o.readCookie(r, sessionCookie, &s) || !o.Clock.Now().Before(s.Expires) {
		return nil
	}
	if err := o.Admit(r.Context(), s.Caller); err != nil {
		if o.Log != nil {
			o.Log.WarnContext(r.Context(), "session refused", "error", err)
		}
		return nil
	}
	return &s
}

// begin sends the visitor to the provider.
func (o *OIDC) begin(w http.ResponseWriter, r *http.Request) {
	to := ownPath(r.URL.Query().Get(toParameter))
	p := pendingSignIn{Nonce: o.IDs.Token(), Verifier: oauth2.GenerateVerifier(), To: to,
		Expires: o.Clock.Now().Add(pendingLife)}
	if !o.readCookie(r, pendingCookie, &p.Browser) {
		p.Browser = o.IDs.Token()
	}
	_, provider, err := o.discover(r.Context())
	if err == nil {
		err = o.setCookie(w, pendingCookie, p.Browser, pendingLife)
	}
	var state string
	if err == nil {
		state, err = o.seal(stateParameter, p)
	}
	if err != nil {
		o.refuse(w, r, to, err)
		return
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(p.Nonce), oauth2.S256ChallengeOption(p.Verifier)}
	if r.URL.Query().Get(asParameter) == somebodyElse {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"))
	}
	redirect(w, pagePolicy, o.config(provider).AuthCodeURL(state, options...))
}

// finish takes what the provider has sent the visitor back with, and makes it a session.
func (o *OIDC) finish(w http.ResponseWriter, r *http.Request) {
	var p pendingSignIn
	var browser string
	q := r.URL.Query()
	if !o.readCookie(r, pendingCookie, &browser) || !o.open(stateParameter, q.Get(stateParameter), &p) ||
		!o.Clock.Now().Before(p.Expires) || subtle.ConstantTimeCompare([]byte(p.Browser), []byte(browser)) != 1 {
		o.refuse(w, r, "/", &signInError{http.StatusBadRequest,
			"It was not begun in this browser, or it took more than ten minutes. Begin again.", nil})
		return
	}
	s, err := o.redeem(r.Context(), q.Get("code"), p)
	if err == nil {
		err = o.setCookie(w, sessionCookie, s, sessionLife)
	}
	if err != nil {
		o.refuse(w, r, p.To, err)
		return
	}
	redirect(w, pagePolicy, p.To)
}

// redeem exchanges a code for an ID token, verifies it, and returns the session of the person whom it names.
func (o *OIDC) redeem(ctx context.Context, code string, p pendingSignIn) (s Session, err error) {
	if code == "" {
		return s, &signInError{http.StatusForbidden, "The identity provider did not sign you in.", nil}
	}
	ctx, provider, err := o.discover(ctx)
	if err != nil {
		return s, err
	}
	client := o.config(provider)
	if o.Secret != nil {
		if client.ClientSecret, err = o.Secret(ctx); err != nil {
			return s, fmt.Errorf("read the client's secret: %w", err)
		}
	}
	tokens, err := client.Exchange(ctx, code, oauth2.VerifierOption(p.Verifier))
	if err != nil {
		return s, exchangeError(err)
	}
	text, _ := tokens.Extra("id_token").(string)
	token, err := provider.Verifier(&oidc.Config{ClientID: o.ClientID, Now: o.Clock.Now}).Verify(ctx, text)
	if err == nil && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(p.Nonce)) != 1 {
		err = errors.New("the ID token has another nonce")
	}
	claims := map[string]json.RawMessage{}
	if err == nil {
		err = token.Claims(&claims)
	}
	switch {
	case err != nil && strings.Contains(err.Error(), "fetching keys"): // the library has no type for it
		return s, &signInError{http.StatusBadGateway, providerAway, err}
	case err != nil:
		return s, &signInError{http.StatusForbidden, "What the identity provider says of you could not be verified.", err}
	}
	texts := map[string]string{}
	for name, value := range claims {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		texts[name] = text
	}
	s.Key, s.Expires = o.IDs.Token(), o.Clock.Now().Add(sessionLife)
	if s.Caller, err = o.Identify(texts); err == nil {
		err = o.Admit(ctx, s.Caller)
	}
	return s, err
}

// exchangeError says why a code was not exchanged, and what to do: begin again, ask the operators, or wait.
func exchangeError(err error) error {
	e := &signInError{http.StatusBadGateway, providerAway, err}
	switch e.ErrorCode() {
	case "":
	case "invalid_grant":
		e.status, e.problem = http.StatusForbidden, "The provider takes this sign-in no more. Begin again."
	default: // such as invalid_client
		e.problem = "The identity provider does not accept the client of this deployment. Its operators find why in the log."
	}
	return e
}

// signOut ends the session in this browser, if the form was made for it.
func (o *OIDC) signOut(w http.ResponseWriter, r *http.Request) {
	s := o.Session(r)
	form, err := readForm(r, true)
	if s != nil && (err != nil || subtle.ConstantTimeCompare([]byte(form[proofField]), []byte(s.Key)) != 1) {
		o.writePage(w, http.StatusForbidden, "You are still signed in", "The form was not one of your session.", "")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: true,
		SameSite: http.SameSiteLaxMode})
	o.writePage(w, http.StatusOK, "You are signed out", "The identity provider may still know you in this browser.", "/")
}

const providerAway = "The identity provider cannot be reached. Try later."

// signInError is why a sign-in failed: the problem for the person, and the error for the log.
type signInError struct {
	status  int
	problem string
	err     error
}

func (e *signInError) Error() string { return fmt.Sprintf("sign in: %s: %v", e.problem, e.err) }

// ErrorCode is what the provider's token endpoint answered, such as invalid_client; "" = nothing of OAuth.
func (e *signInError) ErrorCode() string {
	var refused *oauth2.RetrieveError
	if errors.As(e.err, &refused) {
		return refused.ErrorCode
	}
	return ""
}

func (e *signInError) Unwrap() error { return e.err }

// refuse says why nobody was signed in.
func (o *OIDC) refuse(w http.ResponseWriter, r *http.Request, to string, err error) {
	status, text := http.StatusServiceUnavailable, "Something went wrong here. Try again later."
	var failed *signInError
	var nobody *Problem
	switch {
	case errors.As(err, &failed):
		status, text = failed.status, failed.problem
	case errors.As(err, &nobody):
		status, text = http.StatusForbidden, "The identity provider knows you, but you cannot be let in: "+nobody.Detail+"."
	}
	if o.Log != nil {
		o.Log.WarnContext(r.Context(), "sign-in failed", "status", status, "error", err)
	}
	o.writePage(w, status, "You were not signed in", text, to)
}

// discover returns the provider, and a context with the client for it. A failure is not remembered.
func (o *OIDC) discover(ctx context.Context) (context.Context, *oidc.Provider, error) {
	ctx = oidc.ClientContext(ctx, o.Client)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.provider == nil {
		p, err := oidc.NewProvider(ctx, o.Issuer)
		if err != nil {
			return ctx, nil, &signInError{http.StatusBadGateway, providerAway, err}
		}
		o.provider = p
	}
	return ctx, o.provider, nil
}

// config returns this client of the provider.
func (o *OIDC) config(p *oidc.Provider) *oauth2.Config {
	at := p.Endpoint()
	if o.Secret == nil {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{ClientID: o.ClientID, Endpoint: at,
		RedirectURL: strings.TrimSuffix(o.Base, "/") + returnPath, Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}
}

// seal encrypts a value for one use, such as a cookie, of this client of this provider.
func (o *OIDC) seal(use string, value any) (string, error) {
	text, _ := json.Marshal(value) // texts and a time always can be
	ring, err := o.Ring()
	if err != nil {
		return "", fmt.Errorf("make %s: %w", use, err)
	}
	return ring.Seal(o.audience(use), text)
}

// open reads what seal has written, and reports whether it is that.
func (o *OIDC) open(use, sealed string, value any) bool {
	ring, err := o.Ring()
	if err != nil {
		return false
	}
	text, ok := ring.Open(o.audience(use), sealed)
	return ok && json.Unmarshal(text, value) == nil
}

func (o *OIDC) audience(use string) string { return fmt.Sprintf("%s %q %q", use, o.Issuer, o.ClientID) }

func (o *OIDC) setCookie(w http.ResponseWriter, name string, value any, life time.Duration) error {
	sealed, err := o.seal(name, value)
	if err == nil && len(sealed) > maxCookie {
		err = &signInError{http.StatusForbidden, "You are in more groups than a session can hold.", nil}
	}
	if err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{Name: name, Value: sealed, Path: "/", MaxAge: int(life.Seconds()), HttpOnly: true,
		Secure: true, SameSite: http.SameSiteLaxMode})
	return nil
}

// readCookie reads what setCookie has written, and reports whether it is there.
func (o *OIDC) readCookie(r *http.Request, name string, value any) bool {
	c, err := r.Cookie(name)
	return err == nil && o.open(name, c.Value, value)
}

// writePage writes a page that offers to sign in and come back to a path; "" = it offers nothing.
func (o *OIDC) writePage(w http.ResponseWriter, status int, heading, text, to string) {
	page := plainPage{Heading: heading, Text: text}
	if to != "" {
		page.SignIn = signInAddress(to, false)
	}
	linkServer().writePlain(w, status, page)
}

// redirect sends the browser elsewhere. What it asks there is a GET.
func redirect(w http.ResponseWriter, policy, to string) {
	setSecurityHeaders(w.Header(), policy)
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// ownPath returns the path of a page of ours with its query, or / for anything else, such as another site's address.
func ownPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, `/\`) || strings.HasPrefix(u.Path, APIPath) ||
		slices.Contains(SignInPaths(), u.Path) {
		return "/"
	}
	return u.RequestURI()
}
