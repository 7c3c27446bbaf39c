package web_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/web"
)

// formFields is the table: for each field of a page's forms, what is wrong for it, beside what is wrong for every field. Names are of readForm's.
var formFields = map[string][]string{
	"form":   {"", "x", badinput.Canary, strings.Repeat("A", 200), "AAAA\r\n"},
	"action": {"", "Approve", "cancel", "resume", "approve ", badinput.Canary, "approve\x00"},
	"note":   {strings.Repeat("x", web.MaxNote+1), strings.Repeat("é", web.MaxNote+1)},
	"text":   {strings.Repeat("x", web.MaxNote+1)},
	"args":   {}, "result": {}, "tool": {"other", badinput.Canary},
}

// Every field of a page's form, wrong in every way: the page is shown again or nothing is said, and nothing is written.
func TestBadForms(t *testing.T) {
	w := newHarness(t, asksToPay(`{"amount": 5}`))
	a := w.pendingRequest()
	at := w.newLink(a, "user:ana")
	require.Eventually(t, func() bool { // from then on nothing moves
		h, err := w.m.Ports.Journal.Head(t.Context(), local.Tenant, w.run)
		return err == nil && h.Token != ""
	}, 60e9, 1e6)
	page := w.do("GET", at, nil)
	w.clk.advance(60e9) // the rate of a link
	count := 0
	e := &badinput.Edge{
		State: func() string { return badinput.State(w.rows, len(w.paid)) }, Observed: func() string { return fmt.Sprint(len(w.paid)) },
	}
	send := func(what, body string, status int, headers ...string) {
		t.Helper()
		count++
		w.clk.advance(2e9)
		e.Code = fmt.Sprint(status)
		e.Send = func(badinput.Case) badinput.Answer {
			got := w.send("POST", at, strings.NewReader(body), append([]string{"Content-Type", formType}, headers...)...)
			return badinput.Answer{Code: fmt.Sprint(got.status), Other: fmt.Sprint(got.header)}
		}
		e.RequireRefused(t, badinput.Case{What: what})
	}
	good := w.fillForm(page.body, "action", "approve", "note", "n", "args", "{}", "result", "r", "tool", "", "text", "t")
	require.ElementsMatch(t, slices.Collect(maps.Keys(formFields)), slices.Collect(maps.Keys(good)))
	for name := range formFields {
		again := good.Encode() + "&" + name + "=" + url.QueryEscape(good.Get(name))
		send(name+" twice", again, 400)
		send(name+" in capitals", strings.Replace(good.Encode(), name+"=", strings.ToUpper(name)+"=", 1), 400)
		for _, value := range formFields[name] {
			status := map[string]int{"form": 403, "tool": 422}[name]
			send(fmt.Sprintf("%s as %.20q", name, value), with(good, name, value).Encode(), max(400, status))
		}
	}
	encoded := good.Encode()
	for what, body := range map[string]string{
		"another field": encoded + "&zzz=" + badinput.Canary, "a bad escape": encoded + "&note=%zz", "a semicolon": strings.Replace(encoded, "&", ";", 1), "nothing": "", "JSON": `{"action":"approve"}`,
		"nine fields": encoded + "&a=1&b=2", "too large": encoded + "&x=" + strings.Repeat("x", 1<<20), "the console's proof": encoded + "&key=" + badinput.Canary,
	} {
		send(what, body, map[bool]int{true: 403, false: 400}[what == "nothing"])
	}
	for _, kind := range []string{"", "application/json", "multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded, text/plain"} {
		send("the type "+kind, encoded, 400, "Content-Type", kind)
	}
	for _, origin := range []string{"https://evil.example", "null"} {
		send("of "+origin, encoded, 403, "Origin", origin)
	}
	send("of another site", encoded, 403, "Sec-Fetch-Site", "cross-site")
	t.Logf("%d forms", count)
	require.Equal(t, http.StatusSeeOther, w.pressButton(at, "approve").status, "and what is good is taken")
}

// Every path below a page's, with what is no token of ours or more than one: there is nothing, of whichever it is.
func TestBadLinks(t *testing.T) {
	w := newHarness(t, asksToPay(`{"amount": 5}`))
	at := w.newLink(w.pendingRequest(), "user:ana")
	token := at[strings.LastIndexByte(at, '/')+1:]
	missing := w.do("GET", w.server.URL+"/a/x", nil)
	for _, path := range []string{
		"/a", "/a/", "/a//" + token, "/a/" + token + "/", "/a/" + token + "/x", "/a/" + token + "%00", "/a/" + token + "%0a", "/a/" + token + "=", "/a/" + token[:len(token)-1],
		"/a/" + token + "A", "/a/" + strings.ToUpper(token), "/a/" + token + "?x=1", "/a/../a/" + token, "/a/%2e%2e/a/" + token, "/A/" + token, "/a/" + badinput.Canary, "/a/" + strings.Repeat("A", 5000), "/slack/interactions/x",
	} {
		w.clk.advance(60e9)
		got := w.do("GET", w.server.URL+path, nil)
		if path == "/a/../a/"+token { // a client cleans it
			continue
		}
		require.Equal(t, http.StatusNotFound, got.status, path)
		require.Equal(t, missing.body, got.body, path)
		require.NotContains(t, fmt.Sprint(got.header), badinput.Canary)
	}
}
