package api_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/web/api"
)

// hostileIDs stand for an id in a path, as they are sent.
var hostileIDs = []string{
	"..", ".", "%2e%2e", "..%2f..%2fapprovals", "%2F", "%5c..%5c", "%00", "x%00y", "%ff%fe", "%0d%0aSet-Cookie:%20" + badinput.Canary, badinput.Canary, "T%23globex%23RUN%23x",
	"%E2%80%AE", "raaaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaa", "daaaaaaaaaaaaaaaaaaaaaaaaa", "Raaaaaaaaaaaaaaaaaaaaaaaaa", "raaaaaaaaaaaaaaaaaaaaaaaaa%20", "*", "%7Bid%7D", "0", "-1", "null",
	strings.Repeat("a", 5000), ";", "a;b=c", "%25", "a%2526b", "%F0%9F%92%A9",
}

// anything is what many queries refuse.
var anything = []string{"", "x", "%00", "%ff", "%0d%0aX:y", badinput.Canary, strings.Repeat("9", 400), "null", "%E2%80%AE", "-", "1%2C2", "[1]"}

// queries is the table: what each parameter of a query refuses, by its name.
var queries = map[string][]string{
	"limit":    slices.Concat(anything, []string{"0", "-1", "201", "1.5", "1e2", "%2B5", "05", "%205", "5%20", "0x10"}),
	"cursor":   slices.Concat(anything[1:], []string{"-2", "done", "+1", "%2B1", "01", ".1", "1.x", "1.-1", "1.2.3", "1.01"}),
	"status":   slices.Concat(anything, []string{"Done", "waiting,done", "pending%20"}),
	"agent":    {"A", "%00", "%ff", "a%2Fb", strings.Repeat("a", 41)},
	"root":     slices.Concat(anything, hostileIDs[8:15]),
	"run":      slices.Concat(anything, hostileIDs[8:15]),
	"messages": slices.Concat(anything, []string{"2", "true", "00"}),
	"format":   slices.Concat(anything[1:], []string{"JOURNAL", "journal%20", "journal,arvo"}),
	"digest":   {""},
}

// Every parameter of every path and every query: refused for what it is, and nothing is written.
func TestBadPathsAndQueries(t *testing.T) {
	d, b := readDocument(t), newBadBench(t)
	count := 0
	send := func(op, target string, allowed ...int) {
		t.Helper()
		count++
		e := b.edge(op)
		e.Send = func(c badinput.Case) badinput.Answer {
			got := b.raw(op, target, d.example(op))
			if slices.Contains(allowed, got.status) {
				return badinput.Answer{Code: invalidProblem, Other: fmt.Sprint(got.header)}
			}
			return badinput.Answer{Code: fmt.Sprintf("%d %.300s", got.status, got.body)}
		}
		e.RequireRefused(t, badinput.Case{What: op + " as " + target})
	}
	for _, op := range api.Routes() {
		_, path, _ := strings.Cut(op, " ")
		_, good, _ := strings.Cut(real(op, b.wait), " ")
		for i, part := range strings.Split(path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			for _, id := range hostileIDs {
				parts := strings.Split(good, "/")
				parts[i] = id
				if part == "{call}" { // see below
					continue
				}
				send(op, strings.Join(parts, "/"), 404, map[bool]int{true: 400, false: 404}[part == "{sha256}"])
			}
		}
		if strings.Contains(op, "{call}") {
			for _, id := range hostileIDs {
				send(op, strings.Replace(good, "/c1", "/"+id, 1), 404, 409)
			}
		}
		known := d.parameters(op, "query")
		for _, name := range known {
			require.Contains(t, queries, name, "a parameter without a table")
			for _, value := range queries[name] {
				send(op, good+"?"+name+"="+value, 400, map[bool]int{true: 404, false: 400}[name == "root" || name == "run"])
			}
			send(op, good+"?"+name+"=1&"+name+"=1", 400)
		}
		for _, q := range []string{"zzz=1", "zzz", "=", "%zz=1", "a=%zz", ";", "a;b", "limit=1;cursor=x", "Limit=1", "_method=POST", "tenant=globex", badinput.Canary + "=1", strings.Repeat("a", 5000) + "=1"} {
			send(op, good+"?"+q, 400)
		}
	}
	require.Equal(t, b.wait, b.waitUntilParked(b.wait.ID))
	t.Logf("%d paths and queries of %d routes", count, len(api.Routes()))
}

// raw makes a request whose target is sent as it is written.
func (b *badBench) raw(op, target, body string, headers ...string) answer {
	b.t.Helper()
	method, _, _ := strings.Cut(op, " ")
	if body != "" {
		headers = append(headers, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	return b.read(method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + strings.Join(append(headers, "", ""), "\r\n") + body)
}

// read answers a request as it stands on the wire, without one.
func (b *badBench) read(text string) answer {
	b.t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil { // as the server does
		return answer{status: http.StatusBadRequest}
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r.WithContext(b.t.Context()))
	return answer{w.Code, w.Header(), w.Body.String()}
}

// The headers of a request, and the ways in which a body is sent, on every route that takes one.
func TestBadHeaders(t *testing.T) {
	d, b := readDocument(t), newBadBench(t)
	count := 0
	big := string(badinput.Padded(`{}`, 256<<10+1))
	for op, of := range bodies {
		_, target, _ := strings.Cut(real(op, b.wait), " ")
		good := b.good(of.examples[0])
		zip := string(badinput.Gzip(good))
		for _, c := range []struct {
			what, body, status string
			headers            []string
		}{
			{"no type", good, "415", []string{"Content-Type:"}}, {"another type", good, "415", []string{"Content-Type: text/plain"}}, {"a form", good, "415", []string{"Content-Type: application/x-www-form-urlencoded"}},
			{"two types", good, "415", []string{"Content-Type: application/json, text/html"}}, {"a broken type", good, "415", []string{"Content-Type: application/json; =" + badinput.Canary}},
			{"another charset", good, "415", []string{"Content-Type: application/json; charset=utf-16"}}, {"a long type", good, "415", []string{"Content-Type: " + strings.Repeat("a", 5000)}},
			{"compressed", zip, "415", []string{"Content-Type: application/json", "Content-Encoding: gzip"}}, {"twice encoded", good, "415", []string{"Content-Type: application/json", "Content-Encoding: identity, gzip"}},
			{"a second encoding", good, "415", []string{"Content-Type: application/json", "Content-Encoding: identity", "Content-Encoding: gzip"}}, {"a second type", good, "415", []string{"Content-Type: application/json", "Content-Type: text/plain"}},
			{"a byte too large", big, "413", []string{"Content-Type: application/json"}},
		} {
			sent := func(how string, text string) {
				count++
				e := b.edge(op)
				e.Code = c.status
				e.Send = func(badinput.Case) badinput.Answer {
					got := b.read(text)
					return badinput.Answer{Code: fmt.Sprint(got.status), Other: fmt.Sprint(got.header)}
				}
				e.RequireRefused(t, badinput.Case{What: op + ": " + c.what + how})
			}
			method, _, _ := strings.Cut(op, " ")
			head := method + " " + target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(c.headers, "\r\n") + "\r\n"
			sent("", head+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(c.body), c.body))
			sent(", in chunks", head+fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(c.body), c.body))
		}
		key := b.edge(op)
		key.Send = func(c badinput.Case) badinput.Answer {
			return b.answered(b.raw(op, target, d.example(op), "Idempotency-Key: "+string(c.Body)))
		}
		if !slices.Contains(d.parameters(op, "header"), "Idempotency-Key") {
			continue
		}
		for what, value := range map[string]string{"no UTF-8": "\xff", "too long": strings.Repeat("k", 257), "cut": "\xe2\x82"} {
			key.RequireRefused(t, badinput.Case{Key: "/key", What: op + ": a key that is " + what, Body: []byte(value)})
			count++
		}
	}
	events := "/v1/runs/" + b.wait.ID + "/events"
	for _, id := range append(slices.Clone(queries["cursor"]), "0 1", "0,1", "1;2", " ") {
		id, err := url.PathUnescape(id)
		require.NoError(t, err)
		if strings.ContainsAny(id, "\x00\r\n") || !utf8.ValidString(id) || strings.TrimSpace(id) == "" {
			continue // no header
		}
		e := b.edge("GET /v1/runs/{id}/events")
		e.Send = func(badinput.Case) badinput.Answer {
			return b.answered(b.raw("GET", events, "", "Accept: text/event-stream", "Last-Event-ID: "+id))
		}
		e.RequireRefused(t, badinput.Case{Key: "/Last-Event-ID", What: fmt.Sprintf("Last-Event-ID %.40q", id)})
		count++
	}
	t.Logf("%d headers", count)
}
