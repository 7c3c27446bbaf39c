package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/web/api"
)

const devToken = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// guarded answers a request line behind a guard of port 8420. The header Host sets the host.
func guarded(t *testing.T, g api.Guard, line string, headers ...string) (*http.Response, string) {
	t.Helper()
	g.Token, g.Port = devToken, "8420"
	method, path, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:8420"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("through")) })).ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// lookCookie is the value that the printed link puts into a browser.
func lookCookie(t *testing.T) string {
	t.Helper()
	resp, _ := guarded(t, api.Guard{}, "GET /?token="+devToken)
	require.Len(t, resp.Cookies(), 1)
	require.NotContains(t, resp.Cookies()[0].Value, devToken, "whatever listens on another port of localhost is shown it")
	return resp.Cookies()[0].Value
}

func TestGuard(t *testing.T) {
	bearer := func(more ...string) []string { return append([]string{"Authorization", "Bearer " + devToken}, more...) }
	cookie := func(more ...string) []string {
		return append([]string{"Cookie", "countersign-8420=" + lookCookie(t)}, more...)
	}
	open := api.Guard{Open: true, Name: "dev.example"}
	forms := api.Guard{HasFormProof: func(r *http.Request) bool { return r.URL.Path == "/form" }}
	for name, c := range map[string]struct {
		guard   api.Guard
		request string
		headers []string
		want    int
	}{
		"bearer":                         {request: "GET /x", headers: bearer(), want: 200},
		"bearer in small letters":        {request: "GET /x", headers: []string{"Authorization", "bearer " + devToken}, want: 200},
		"cookie":                         {request: "GET /x", headers: cookie(), want: 200},
		"the second of two cookies":      {request: "GET /x", headers: []string{"Cookie", "countersign-8420=old; countersign-8420=" + lookCookie(t)}, want: 200},
		"nothing":                        {request: "GET /x", want: 401},
		"an empty bearer":                {request: "GET /x", headers: []string{"Authorization", "Bearer "}, want: 401},
		"a longer bearer":                {request: "GET /x", headers: []string{"Authorization", "Bearer " + devToken + "a"}, want: 401},
		"another bearer":                 {request: "GET /x", headers: []string{"Authorization", "Bearer b" + devToken[1:]}, want: 401},
		"another scheme":                 {request: "GET /x", headers: []string{"Authorization", "Basic " + devToken}, want: 401},
		"a wrong bearer beside a cookie": {request: "GET /x", headers: cookie("Authorization", "Bearer x"), want: 401},
		"the cookie of another port":     {request: "GET /x", headers: []string{"Cookie", "countersign-8421=" + lookCookie(t)}, want: 401},
		"the token as a cookie":          {request: "GET /x", headers: []string{"Cookie", "countersign-8420=" + devToken}, want: 401},
		"the cookie as a token":          {request: "GET /x", headers: []string{"Authorization", "Bearer " + lookCookie(t)}, want: 401},
		"an act with the cookie":         {request: "POST /x", headers: cookie(), want: 401},
		"a form that proves itself":      {guard: forms, request: "POST /form", headers: cookie(), want: 200},
		"another form":                   {guard: forms, request: "POST /x", headers: cookie(), want: 401},
		"another method of that form":    {guard: forms, request: "PUT /form", headers: cookie(), want: 401},
		"that form without a cookie":     {guard: forms, request: "POST /form", want: 401},
		"that form, with a wrong bearer": {guard: forms, request: "POST /form", headers: cookie("Authorization", "Bearer x"), want: 401},
		"that form of another site":      {guard: forms, request: "POST /form", headers: cookie("Origin", "http://evil.example"), want: 403},
		"a token in the query of a POST": {request: "POST /x?token=" + devToken, want: 401},
		"a wrong token in the query":     {request: "GET /x?token=x", want: 401},

		"localhost":                {request: "GET /x", headers: bearer("Host", "localhost:8420"), want: 200},
		"LOCALHOST":                {request: "GET /x", headers: bearer("Host", "LOCALHOST:8420"), want: 200},
		"::1":                      {request: "GET /x", headers: bearer("Host", "[::1]:8420"), want: 200},
		"another port":             {request: "GET /x", headers: bearer("Host", "127.0.0.1:80"), want: 403},
		"no port":                  {request: "GET /x", headers: bearer("Host", "127.0.0.1"), want: 403},
		"no host":                  {request: "GET /x", headers: bearer("Host", ""), want: 403},
		"a rebound name":           {request: "GET /x", headers: bearer("Host", "evil.example:8420"), want: 403},
		"a name that begins right": {request: "GET /x", headers: bearer("Host", "localhost.evil.example:8420"), want: 403},
		"an address of the net":    {request: "GET /x", headers: bearer("Host", "192.0.2.7:8420"), want: 403},
		"a wrong host, no token":   {request: "GET /x", headers: []string{"Host", "evil.example:8420"}, want: 403},
		"open: an address":         {guard: open, request: "GET /x", headers: bearer("Host", "192.0.2.7:8420"), want: 200},
		"open: its name":           {guard: open, request: "GET /x", headers: bearer("Host", "dev.example:8420"), want: 200},
		"open: another name":       {guard: open, request: "GET /x", headers: bearer("Host", "evil.example:8420"), want: 403},
		"open: no token":           {guard: open, request: "GET /x", headers: []string{"Host", "192.0.2.7:8420"}, want: 401},
		"its name, but not open":   {guard: api.Guard{Name: "dev.example"}, request: "GET /x", headers: bearer("Host", "dev.example:8420"), want: 403},

		"its own page":                   {request: "POST /x", headers: bearer("Origin", "http://127.0.0.1:8420", "Sec-Fetch-Site", "same-origin"), want: 200},
		"its own page, an old browser":   {request: "POST /x", headers: bearer("Origin", "http://127.0.0.1:8420"), want: 200},
		"a page of another site":         {request: "POST /x", headers: cookie("Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"), want: 403},
		"… that says no more":            {request: "POST /x", headers: cookie("Sec-Fetch-Site", "cross-site"), want: 403},
		"… in an old browser":            {request: "POST /x", headers: cookie("Origin", "http://evil.example"), want: 403},
		"a page of another port":         {request: "POST /x", headers: cookie("Origin", "http://127.0.0.1:3000", "Sec-Fetch-Site", "same-site"), want: 403},
		"a sandboxed page":               {request: "PUT /x", headers: cookie("Origin", "null"), want: 403},
		"another site, with the token":   {request: "DELETE /x", headers: bearer("Origin", "http://evil.example"), want: 403},
		"a link from another site":       {request: "GET /x", headers: cookie("Sec-Fetch-Site", "cross-site"), want: 200},
		"a preflight from another site":  {request: "OPTIONS /x", headers: []string{"Origin", "http://evil.example"}, want: 401},
		"a page of another site, openly": {guard: open, request: "POST /x", headers: cookie("Host", "192.0.2.7:8420", "Origin", "http://evil.example"), want: 403},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := guarded(t, c.guard, c.request, c.headers...)
			require.Equal(t, c.want, resp.StatusCode, body)
			require.Equal(t, c.want == 200, body == "through")
			require.NotContains(t, body, devToken)
			require.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"))
			require.Empty(t, resp.Header.Get("Set-Cookie"))
			require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
			require.Equal(t, c.want == 401, resp.Header.Get("WWW-Authenticate") != "")
			if c.want != 200 {
				require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			}
		})
	}
}

func TestGuardWithoutATokenLetsNobodyThrough(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/?token=", nil)
	r.Host = "localhost:8420"
	r.Header.Set("Cookie", "countersign-8420=")
	api.Guard{Port: "8420"}.Protect(http.NotFoundHandler()).ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

// The printed link gives a cookie that scripts cannot read and other sites do not send, and goes to the path without the token.
func TestGuardTakesTheTokenOutOfTheAddress(t *testing.T) {
	for path, want := range map[string]string{
		"/?token=" + devToken:                       "/",
		"/v1/runs?limit=2&token=" + devToken:        "/v1/runs?limit=2",
		"//evil.example/x?token=" + devToken:        "/evil.example/x",
		"/a%2Fb?token=" + devToken + "&token=again": "/a%2Fb",
	} {
		resp, body := guarded(t, api.Guard{}, "GET http://127.0.0.1:8420"+path)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode, path)
		require.Equal(t, want, resp.Header.Get("Location"), path)
		require.Empty(t, body)
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
		require.Equal(t, "no-referrer", resp.Header.Get("Referrer-Policy"))
		require.Equal(t, "countersign-8420="+lookCookie(t)+"; Path=/; HttpOnly; SameSite=Strict", resp.Header.Get("Set-Cookie"))
	}
	resp, _ := guarded(t, api.Guard{}, "GET /?token="+devToken, "Host", "evil.example:8420")
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Set-Cookie"))
}
