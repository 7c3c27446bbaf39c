package tools_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// What becomes of a message. "" = it is taken as it is meant.
const (
	refused = "refused" // the listing fails
	left    = "left"    // a tool is left out with the reason, and the rest is there
	none    = "none"    // the server has no tools
	older   = "older"   // an older protocol is spoken

	lost   = "lost"   // nobody can say whether the call was made
	failed = "failed" // the server says that it was not
	noted  = "noted"  // the result says that something of it is left out, or is no result of the protocol
	theirs = "theirs" // the result is the tool's own error
	asking = "asking" // the call waits for people
	wanted = "wanted" // the result says that the server asked for something that it did not get
)

// rule says what a key of a server's message may hold, and what becomes of the message for each way in which it is
// wrong.
type rule struct {
	badinput.Field
	unread bool              // nobody reads the key: whatever it holds, the message is taken
	on     map[string]string // what becomes of it where Field does not say so, by Case.What or, for kinds and values, by its beginning
}

type rules map[string]rule

// anything is a rule of what nobody reads.
var anything = rule{Field: badinput.Field{Takes: "snbao"}, unread: true}

// broken reports whether a case makes a message that is no JSON: whatever is read of it otherwise, it cannot be.
func broken(what string) bool {
	return strings.HasPrefix(what, "a raw ") || strings.HasPrefix(what, "no number, ")
}

// of are the cases of a message by its rules. Keys that are no rule's are taken.
func (all rules) of(good, otherwise, garbled string) []badinput.Case {
	fields := map[string]badinput.Field{}
	for key, r := range all {
		fields[key] = r.Field
	}
	cases := badinput.Cases(good, fields)
	for i := range cases {
		c := &cases[i]
		if c.Code == "" {
			c.Code = otherwise
		}
		r := all[c.Key]
		c.Says = cmp.Or(c.Says, r.Says)
		switch {
		case broken(c.What):
			c.Code, c.KeyNotNamed = garbled, true
		case r.unread && otherwise != left, c.What == "an unknown key", r.unread && (c.What == "65 deep" || c.What == "in capitals"):
			c.Code = okMCP
		}
		for what, becomes := range r.on {
			if strings.HasPrefix(c.What, what) {
				c.Code = becomes
			}
		}
	}
	return cases
}

// ok is the code of a case whose message is taken: badinput has "" for its own.
const okMCP = "ok"

// script is what the server of these tests answers: the body of one method's answer, in which id stands for that of the
// request.
type script struct {
	old    bool // it knows initialize alone
	method string
	body   string
	stream bool // the body is a stream of events
}

// front is a server whose script changes from case to case, each of which is an invocation of its own.
type front struct {
	*peer
	now    atomic.Pointer[script]
	remote tools.MCP
	server agent.MCPServer
}

func newFront(t *testing.T) *front {
	f := &front{peer: newPeer(t)}
	f.first = func(w http.ResponseWriter, a ask) bool {
		s := f.now.Load()
		switch {
		case s.old && a.Method == "server/discover":
			f.refuse(w, a, -32601, "no such method")
		case s.method == a.Method && s.stream:
			raw("text/event-stream", strings.ReplaceAll(s.body, id, string(a.ID)))(w, a)
		case s.method == a.Method:
			raw("application/json", strings.ReplaceAll(s.body, id, string(a.ID)))(w, a)
		default:
			return false
		}
		return true
	}
	over(t, f, func(c *tools.MCP, s *agent.MCPServer) {
		s.Timeout = 20 * time.Second
		f.remote, f.server = *c, *s
	})
	return f
}

// id stands for the request's id in a script.
const id = "990099"

// result is an answer with a result.
func result(of string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + of + `}` }

// lists is what a listing becomes under a script.
func (f *front) lists(s script) badinput.Answer {
	f.now.Store(&s)
	r := open(f.t, f.remote, f.server)
	defer r.session.Close()
	tools, err := r.list()
	switch {
	case err != nil:
		return badinput.Answer{Code: refused, Message: err.Error()}
	case len(tools.Left) > 0:
		return badinput.Answer{Code: left, Message: tools.Left[0].Why, Other: ""}
	case len(tools.Tools) == 0:
		return badinput.Answer{Code: none}
	case tools.Protocol != "2026-07-28" && !s.old:
		return badinput.Answer{Code: older}
	}
	return badinput.Answer{Code: okMCP}
}

// calls is what a call becomes under a script.
func (f *front) call(s script) badinput.Answer {
	f.now.Store(&s)
	r := open(f.t, f.remote, f.server)
	defer r.session.Close()
	tools, err := r.list()
	if err != nil || len(tools.Tools) != 1 {
		return badinput.Answer{Code: "not listed", Message: fmt.Sprint(tools, err)}
	}
	before := len(f.calls("tools/call"))
	res, err := r.pinned("echo", tools.Tools[0].Digest).Call(context.Background(), tool.Call{})
	if n := len(f.calls("tools/call")) - before; n != 1 {
		return badinput.Answer{Code: fmt.Sprintf("it was called %d times", n)}
	}
	return outcome(res, err)
}

// outcome is what a call has become.
func outcome(res agent.ToolResultData, err error) badinput.Answer {
	switch {
	case errors.As(err, new(*tool.LostError)):
		return badinput.Answer{Code: lost, Message: err.Error()}
	case err != nil:
		return badinput.Answer{Code: failed, Message: err.Error()}
	case res.Suspend != nil:
		return badinput.Answer{Code: asking}
	case res.IsError:
		return badinput.Answer{Code: theirs, Message: res.Content}
	case strings.Contains(res.Content, `[meanwhile the server asked for "`) ||
		strings.Contains(res.Content, "[meanwhile the server wanted to ask people, which was declined: "+
			"it can over protocol 2026-07-28]"):
		return badinput.Answer{Code: wanted}
	case strings.Contains(res.Content, "left out") || strings.Contains(res.Content, "not a result of the protocol"):
		return badinput.Answer{Code: noted}
	}
	return badinput.Answer{Code: okMCP}
}

// meets sends every case, whose answers must become what their codes say. What is refused names the server, and has
// nothing of the server's in it, no address and nothing of this program's.
func meets(t *testing.T, f *front, cases []badinput.Case, send func(badinput.Case) badinput.Answer) {
	t.Helper()
	e := &badinput.Edge{
		State:    func() string { return "" }, // calls are counted where they are made, and pins where there are some: TestRefusedListings
		Observed: func() string { return "" },
	}
	e.Send = func(c badinput.Case) badinput.Answer {
		got := send(c)
		if got.Code == refused || got.Code == lost || got.Code == failed {
			require.Contains(t, got.Message, "MCP server s: ", c)
		}
		require.NotContains(t, got.Message, strings.TrimPrefix(f.server.URL, "http://"), c)
		require.NotContains(t, got.Message, "127.0.0.1", c)
		require.Less(t, len(got.Message), 2200, c)
		return got
	}
	for _, c := range cases {
		e.Quotes = strings.HasPrefix(c.Key, "/error") // what a server says to people is handed on
		c.KeyNotNamed = c.KeyNotNamed || c.Key == "/tools" && c.Code == left || c.Code == okMCP || c.Code == none || c.Code == older || c.Code == noted || c.Code == theirs || c.Code == asking
		e.RequireRefused(t, c)
	}
	t.Logf("%d messages", len(cases))
}

// Every key of the answers that begin a connection: the protocol is read, and nothing else.
func TestBadHandshakes(t *testing.T) {
	f := newFront(t)
	const oldest = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"p","title":"P","version":"1"},"instructions":"Do as I say.","_meta":{"a":1}}`
	keys := rules{
		"/protocolVersion": {Field: badinput.Field{Takes: "s", Required: true, Max: 64, Says: "protocol", Bad: map[string]string{`""`: "", `"1999-01-01"`: "", `"2026-07-28\u0000"`: "", `"\u202e"`: ""}}},
		"/capabilities":    anything, "/capabilities/tools": anything, "/capabilities/tools/listChanged": anything, "/capabilities/logging": anything,
		"/serverInfo": anything, "/serverInfo/name": anything, "/serverInfo/title": anything, "/serverInfo/version": anything, "/instructions": anything, "/_meta": anything,
	}
	meets(t, f, keys.of(oldest, refused, refused), func(c badinput.Case) badinput.Answer {
		return f.lists(script{old: true, method: "initialize", body: result(string(c.Body))})
	})
	const newest = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"Do as I say.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p","version":"1"}}}`
	keys = rules{
		"/supportedVersions": {Field: badinput.Field{Takes: "a", Required: true, Bad: map[string]string{`[]`: older, `["1999-01-01"]`: older, `[null]`: older, `["2025-06-18"]`: older}},
			on: map[string]string{"left out": older, "null": older, "in capitals": older}},
		"/supportedVersions/0": {Field: badinput.Field{Takes: "s", Says: "supportedVersions"}, on: map[string]string{
			"bytes that": older, "a cut": older, "half": older, "halves": older,
		}},
		"/resultType": anything, "/capabilities": anything, "/capabilities/tools": anything, "/capabilities/tools/listChanged": anything, "/instructions": anything, "/_meta": anything,
	}
	meets(t, f, keys.of(newest, refused, refused), func(c badinput.Case) badinput.Answer {
		return f.lists(script{method: "server/discover", body: result(string(c.Body))})
	})
	for _, whole := range []string{`null`, `7`, `"x"`, `[]`, `{}`} { // of servers that answer whatever they are asked
		require.Equal(t, older, f.lists(script{method: "server/discover", body: result(whole)}).Code, whole)
		require.Equal(t, refused, f.lists(script{old: true, method: "initialize", body: result(whole)}).Code, whole)
	}
}

// Every key of a page of tools, and of a tool: a page that cannot be read is no listing, and a tool that cannot is left
// out.
func TestBadPages(t *testing.T) {
	f := newFront(t)
	lists := func(c badinput.Case) badinput.Answer {
		return f.lists(script{method: "tools/list", body: result(string(c.Body))})
	}
	const page = `{"tools":[` + echo + `],"nextCursor":"","_meta":{"a":1},"resultType":"complete","ttlMs":1}`
	keys := rules{
		"/tools":      {Field: badinput.Field{Takes: "a"}, on: map[string]string{"65 deep": left}}, // one tool that is none
		"/nextCursor": {Field: badinput.Field{Takes: "s", Max: 16 << 10}, on: map[string]string{"in capitals": okMCP}},
		"/_meta":      anything, "/resultType": anything, "/ttlMs": anything,
	}
	meets(t, f, append(keys.of(page, refused, refused),
		badinput.Case{Key: "/tools", What: "left out", Body: []byte(`{}`), Code: refused}, badinput.Case{Key: "/tools", What: "null", Body: []byte(`{"tools":null}`), Code: none},
	), lists)

	const whole = `{"name":"echo","title":"T","description":"says it again","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"d"}},"required":["text"],"additionalProperties":false},` +
		`"outputSchema":{"type":"object"},"annotations":{"title":"A","readOnlyHint":true,"destructiveHint":true,"idempotentHint":true,"openWorldHint":true},"_meta":{"a":1},"icons":[{"src":"x"}],"execution":{"taskSupport":"optional"}}`
	hint := rule{Field: badinput.Field{Takes: "b"}}
	elsewhere := map[string]string{}
	for _, at := range []string{"https://evil.example/s.json", "http://127.0.0.1/s.json", "file:///etc/passwd", "//evil.example/s", "s.json", "../s.json", "urn:x:y", "data:application/json,{}"} {
		elsewhere[fmt.Sprintf(`{"a":{"$ref":%q}}`, at)] = ""
		elsewhere[fmt.Sprintf(`{"a":{"anyOf":[{"items":{"$ref":%q}}]}}`, at)] = ""
		elsewhere[fmt.Sprintf(`{"a":{"$dynamicRef":%q}}`, at)] = ""
	}
	elsewhere[`{"a":{"enum":["a\u200bb"]}}`] = ""
	elsewhere[`{"a":{"type":"nothing"}}`] = ""
	keys = rules{
		"/name": {Field: badinput.Field{Takes: "s", Required: true, Bad: map[string]string{
			`""`: "", `"a b"`: "", `"a/b"`: "", `"é"`: "", `"a\u0000"`: "", `"a\nb"`: "", `"\u202e"`: "", `"../x"`: "", `"a."`: "", `".a"`: "", `"a..b"`: "", `"a:b"`: "", `"a#b"`: "", `"-"`: okMCP, `"_"`: okMCP, `"a.b"`: okMCP,
			`"` + lines(62, "n") + `"`: okMCP, `"` + lines(63, "n") + `"`: "", `"` + lines(1000, "n") + `"`: "",
		}}},
		"/title": {Field: badinput.Field{Takes: "s"}}, "/description": {Field: badinput.Field{Takes: "s"}},
		"/inputSchema": {Field: badinput.Field{Takes: "o", Required: true, Bad: map[string]string{`{}`: "", `{"type":"array"}`: "", `{"type":["object","null"]}`: "",
			`{"type":"object","description":"` + lines(100_000, "s") + `"}`: ""}}},
		"/inputSchema/type":                 {Field: badinput.Field{Takes: "s", Required: true, Says: "inputSchema", Bad: map[string]string{`"string"`: "", `"Object"`: ""}}},
		"/inputSchema/properties":           {Field: badinput.Field{Takes: "o", Opaque: true, Says: "inputSchema", Bad: elsewhere}, on: map[string]string{"in capitals": okMCP}},
		"/inputSchema/required":             {Field: badinput.Field{Takes: "a", Says: "inputSchema", Bad: map[string]string{`[7]`: "", `["a","a"]`: ""}}, on: map[string]string{"in capitals": okMCP}},
		"/inputSchema/additionalProperties": {Field: badinput.Field{Takes: "bo", Says: "inputSchema"}, on: map[string]string{"in capitals": okMCP}},
		"/outputSchema":                     {Field: badinput.Field{Takes: "snbao", Bad: map[string]string{`"` + lines(100_000, "s") + `"`: okMCP}}, on: map[string]string{"65 deep": okMCP}},
		"/annotations":                      {Field: badinput.Field{Takes: "o"}}, "/annotations/title": {Field: badinput.Field{Takes: "s"}},
		"/annotations/readOnlyHint": hint, "/annotations/destructiveHint": hint, "/annotations/idempotentHint": hint, "/annotations/openWorldHint": hint,
		"/execution": {Field: badinput.Field{Takes: "snbao"}, on: map[string]string{"65 deep": okMCP}},
		"/_meta":     anything, "/icons": anything,
	}
	for _, key := range badinput.Keys(tools.ToolType) {
		require.Contains(t, keys, key, "a key that is read has a rule")
	}
	meets(t, f, keys.of(whole, left, refused), func(c badinput.Case) badinput.Answer {
		return lists(badinput.Case{Body: []byte(`{"tools":[` + string(c.Body) + `]}`)})
	})
}

// all is a result with a part of every type.
const all = `{"content":[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":1},"_meta":{"a":1}},{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","data":"aGk=","mimeType":"audio/wav"},` +
	`{"type":"resource_link","uri":"https://x.example/d","name":"n","title":"t","description":"d","mimeType":"text/html","size":7},` +
	`{"type":"resource","resource":{"uri":"file:///x","text":"t","mimeType":"text/plain","_meta":{}}},{"type":"resource","resource":{"uri":"file:///y","blob":"aGk=","mimeType":"image/png"}}],` +
	`"structuredContent":{"a":1},"isError":false,"resultType":"complete","inputRequests":{},"requestState":"s","_meta":{"a":1}}`

// part is a rule of a key of one part of a content: what cannot be read is left out, and the rest is there.
func part(takes string) rule {
	return rule{Field: badinput.Field{Takes: takes}, on: map[string]string{
		"of kind": noted, "65 deep": noted, "given twice": okMCP, "in capitals": okMCP, "bytes that": okMCP, "a cut": okMCP, "half": okMCP, "halves": okMCP,
	}}
}

// Every key of a result. What says whether the call was made, and how it went, is read or the call is open; of what it
// says, what can be is taken.
func TestBadResults(t *testing.T) {
	f := newFront(t)
	kind := part("s")
	kind.Required, kind.Bad = true, map[string]string{`""`: noted, `"hologram"`: noted, `"TEXT"`: noted, `"text\u0000"`: noted}
	maps.Copy(kind.on, map[string]string{"left out": noted, "null": noted, "bytes that": noted, "a cut": noted, "half": noted, "halves": noted})
	whole := part("o")
	maps.Copy(whole.on, map[string]string{"bytes that": noted, "a cut": noted, "half": noted, "halves": noted})
	resource := part("o")
	maps.Copy(resource.on, map[string]string{"bytes that": noted, "a cut": noted, "half": noted, "halves": noted})
	content := rule{Field: badinput.Field{Takes: "a"}, on: map[string]string{"of kind": noted, "65 deep": noted, "bytes that": noted, "a cut": noted, "half": noted, "halves": noted, "in capitals": okMCP}}
	complete := rule{unread: true, Field: anything.Field, on: map[string]string{"given twice": lost}} // the call was made: there is nothing to ask
	keys := rules{
		"/content": content, "/content/0": whole, "/content/0/type": kind, "/content/0/text": part("s"), "/content/0/annotations": anything, "/content/0/annotations/audience": anything, "/content/0/_meta": anything,
		"/content/1/type": kind, "/content/1/data": part("s"), "/content/1/mimeType": part("s"), "/content/2/type": kind, "/content/2/data": part("s"), "/content/2/mimeType": part("s"),
		"/content/3/uri": part("s"), "/content/3/name": part("s"), "/content/3/title": anything, "/content/3/description": part("s"), "/content/3/mimeType": part("s"), "/content/3/size": anything,
		"/content/4/resource": resource, "/content/4/resource/uri": part("s"), "/content/4/resource/text": part("s"), "/content/4/resource/mimeType": part("s"), "/content/4/resource/_meta": anything, "/content/5/resource/blob": part("s"),
		"/structuredContent": {Field: badinput.Field{Takes: "snbao"}, on: map[string]string{"65 deep": okMCP, "bytes that": okMCP, "a cut": okMCP, "half": okMCP, "halves": okMCP, "in capitals": okMCP}},
		"/isError":           {Field: badinput.Field{Takes: "b", Bad: map[string]string{`true`: theirs, `1`: "", `"false"`: ""}}, on: map[string]string{"in capitals": okMCP}},
		"/resultType":        {Field: badinput.Field{Takes: "s", Bad: map[string]string{`""`: theirs, `"Complete"`: "", `"task"`: "", `"input_required"`: theirs}}, on: map[string]string{"in capitals": theirs}},
		"/inputRequests":     complete, "/requestState": complete, "/_meta": anything,
	}
	call := func(c badinput.Case) badinput.Answer {
		return f.call(script{method: "tools/call", body: result(string(c.Body))})
	}
	for _, key := range badinput.Keys(tools.PartType) {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(keys)), func(k string) bool { return strings.HasPrefix(k, "/content/") && strings.HasSuffix(k, key) }), "a key that is read has a rule: %s", key)
	}
	meets(t, f, keys.of(all, lost, lost), call)
}

// Every key of a result by which a server asks people first: what cannot be read is not asked, and the server has said
// that it did nothing.
func TestBadQuestionsOfServers(t *testing.T) {
	f := newFront(t)
	const good = `{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"mode":"form","message":"Which one?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}}},"_meta":{}}`
	call := func(c badinput.Case) badinput.Answer {
		return f.call(script{method: "tools/call", body: result(string(c.Body))})
	}
	text := func(takes string, more map[string]string) rule {
		r := rule{Field: badinput.Field{Takes: takes}, on: map[string]string{"given twice": asking, "in capitals": asking, "bytes that": asking, "a cut": asking, "half": asking, "halves": asking}}
		maps.Copy(r.on, more)
		return r
	}
	const at = "/inputRequests/q"
	keys := rules{
		"/requestState":  text("s", map[string]string{"given twice": lost}),
		"/inputRequests": {Field: badinput.Field{Takes: "o", Required: true, Bad: map[string]string{`{}`: "", `{"":{}}`: "", `{"\u202e":{"method":"elicitation/create"}}`: ""}}, on: map[string]string{"given twice": lost}},
		at:               {Field: badinput.Field{Takes: "o", Required: true}, on: map[string]string{"given twice": asking, "in capitals": asking}},
		at + "/method": {Field: badinput.Field{Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"sampling/createMessage"`: "", `"roots/list"`: "", `"elicitation/create\u0000"`: ""}},
			on: map[string]string{"given twice": asking, "in capitals": asking}},
		at + "/params":                 text("o", map[string]string{"bytes that": theirs, "a cut": theirs, "half": theirs, "halves": theirs}),
		at + "/params/mode":            text("s", nil),
		at + "/params/message":         text("s", nil),
		at + "/params/requestedSchema": text("o", map[string]string{"bytes that": theirs, "a cut": theirs, "half": theirs, "halves": theirs}),
		"/_meta":                       anything,
	}
	url := keys[at+"/params/mode"]
	url.Bad = map[string]string{`"url"`: theirs}
	keys[at+"/params/mode"] = url
	asked := keys[at+"/params/requestedSchema"]
	asked.Bad = map[string]string{`{"type":"string"}`: "", `{"type":"object","properties":{"a":{"$ref":"https://evil.example/s.json"}}}`: "", `{"type":"object","type":"object"}`: ""}
	keys[at+"/params/requestedSchema"] = asked
	cases := keys.of(good, theirs, lost)
	for i, c := range cases {
		switch {
		case c.Key == "/inputRequests/zzz": // a question as any other
			cases[i].Code = theirs
		case c.Code == okMCP:
			cases[i].Code = asking
		}
	}
	meets(t, f, cases, call)
}

// What a server sends unasked while a call is under way changes nothing of the call; only what is no message of the
// protocol does.
func TestBadMessagesUnasked(t *testing.T) {
	f := newFront(t)
	sends := func(message, ofList, ofCall string) {
		t.Helper()
		event := func(answer string) string { return "data: " + message + "\n\ndata: " + answer + "\n\n" }
		if got := f.lists(script{method: "tools/list", stream: true, body: event(result(`{"tools":[` + echo + `]}`))}); got.Code != ofList {
			t.Errorf("%.300s before a list: got %s (%s), want %s", message, got.Code, got.Message, ofList)
		}
		if got := f.call(script{method: "tools/call", stream: true, body: event(result(`{"content":[]}`))}); got.Code != ofCall {
			t.Errorf("%.300s before a result: got %s (%s), want %s", message, got.Code, got.Message, ofCall)
		}
	}
	log := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"busy"}}`
	sends(strings.Repeat(log+"\n\ndata: ", 2000)+log, okMCP, okMCP)
	for _, with := range []string{
		"", `,"params":7`, `,"params":{"a":1,"a":2}`,
		`,"params":{"_meta":{"progressToken":` + id + `},"requestId":` + id + `}`,
		`,"params":` + badinput.Depth(65), ",\"params\":\"a\xffb\"", `,"result":{"content":[]}`,
		`,"error":{"code":1,"message":"m"}`,
	} {
		for method, becomes := range map[string]string{
			"ping": okMCP, "sampling/createMessage": wanted, "elicitation/create": wanted, "": okMCP, "a\\u202eb": wanted,
		} {
			sends(`{"jsonrpc":"2.0","id":"q1","method":"`+method+`"`+with+`}`, okMCP, becomes)
		}
		for _, method := range []string{
			"notifications/tools/list_changed", "notifications/cancelled", "sampling/createMessage",
		} {
			sends(`{"jsonrpc":"2.0","method":"`+method+`"`+with+`}`, okMCP, okMCP)
		}
	}
	for of, becomes := range map[string]string{
		`null`: okMCP, `""`: wanted, `1.5`: wanted, `-1`: wanted, id: wanted, `"` + lines(10_000, "q") + `"`: wanted,
	} {
		sends(`{"jsonrpc":"2.0","id":`+of+`,"method":"roots/list"}`, okMCP, becomes)
	}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":true,"method":"roots/list"}`, `{"jsonrpc":"2.0","id":{},"method":"roots/list"}`,
		`{"jsonrpc":"2.0","method":7}`, `{"jsonrpc":"1.0","method":"ping"}`, `{"method":"ping"}`,
		`{"jsonrpc":"2.0"}`, `[]`, `x`,
		`[{"jsonrpc":"2.0","method":"notifications/message"}]`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`,
		`{"jsonrpc":"2.0","id":"q9","result":{}}`, `{"jsonrpc":"2.0","method":"x","params":` + badinput.Depth(2000) + `}`,
	} {
		sends(message, refused, lost)
	}
}
