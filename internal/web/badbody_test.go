package web_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/web"
)

// taken is the table of a route's body: what it is decoded into, what each of its keys may hold, and bodies that are taken as they are.
type taken struct {
	into     any
	opaque   []reflect.Type
	keys     map[string]badinput.Field
	examples []string
	optional bool   // a request without a body is one
	fits     string // the JSON that an empty object would be taken as well; "" = it is refused
}

type fields = map[string]badinput.Field

const (
	invalidProblem = "400 invalid-request"
	anyJSON        = "snbao"
	refused        = "400 grant-refused"
)

// until is a time that a grant may end at.
var until = time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)

// bodies is the table: a line for each route that takes JSON, and for each key of it.
var bodies = map[string]taken{
	"POST /v1/runs": {
		into: web.Start{}, opaque: []reflect.Type{reflect.TypeFor[agent.Definition]()},
		keys: fields{
			"/agent":         {Takes: "s", Bad: map[string]string{`""`: "400 unknown-agent", `"PAYER"`: "400 unknown-agent", `"payer\u0000"`: "400 unknown-agent", `"payer\u202e"`: "400 unknown-agent", badinput.Text(5000): "400 unknown-agent"}},
			"/definition":    {Takes: "o", Opaque: true, Bad: map[string]string{`{}`: "", `{"name":"x"}`: ""}},
			"/input":         {Takes: anyJSON, Good: []string{`1e400`, `-0`, `""`, `[]`, `"\u0000\u202e"`, `{"a":[{"b":1.10}]}`, `{},"message":null`}},
			"/message":       {Takes: "sa", Bad: map[string]string{`""`: "", `[]`: "", `[[]]`: "", `[null]`: "", `["x"]`: ""}, Good: []string{`"x","input":null`}},
			"/key":           {Takes: "s", Max: 256, Bad: map[string]string{`"a\u0000b"`: ""}, Good: []string{badinput.Text(256), `""`, `null`}},
			"/continues":     {Takes: "s", Bad: foreignIDs("404 run-not-found"), Good: []string{`""`, `null`}},
			"/subject":       {Takes: "s", Max: 1024, Bad: map[string]string{`"a\u0000b"`: ""}, Good: []string{badinput.Text(1024), `"\u202e"`, `null`}},
			"/accessControl": {Takes: "s", Max: 1024, Bad: map[string]string{`"a\u0000b"`: ""}, Good: []string{badinput.Text(1024), `null`}},

			"/message/0/type":      {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"Text"`: "", `"tool_use"`: "", `"tool_result"`: "", `"reasoning"`: ""}},
			"/message/0/text":      {Takes: "s", Required: true, Bad: map[string]string{`""`: ""}, Good: []string{`"\u0000\u202e"`}},
			"/message/1/type":      {Takes: "s", Required: true, Bad: map[string]string{`"audio"`: ""}},
			"/message/1/name":      {Takes: "s", Max: 1024, Good: []string{`""`, `null`}},
			"/message/1/mediaType": {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"image"`: "", `"image/png\r\nX: y"`: "", `"a/b/c"`: ""}},
			"/message/1/data":      {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"===="`: "", `"aGk"`: "", `"aGl="`: "", `"aGk=\n"`: "", `"-_-_"`: ""}},
			"/message/2/type":      {Takes: "s", Required: true},
			"/message/2/mediaType": {Takes: "s", Required: true},
			"/message/2/blob":      {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"` + strings.ToUpper(xDigest) + `"`: "", `"../` + xDigest + `"`: "", `"` + xDigest[1:] + `"`: "", `"` + strings.Repeat("0", 64) + `"`: "400 unknown-blob"}},
		},
		examples: []string{
			`{"agent":"payer","message":"x","key":"new","subject":"s","accessControl":"a"}`,
			`{"agent":"payer","input":{"n":1}}`,
			`{"agent":"payer","message":"go on","continues":"DONE"}`,
			`{"agent":"payer","message":[{"type":"text","text":"x"},{"type":"media","name":"n","mediaType":"image/png","data":"aGk="},{"type":"media","mediaType":"image/png","blob":"` + xDigest + `"}]}`,
			`{"definition":DEFINITION,"message":"x"}`,
		},
	},
	"POST /v1/runs/{id}/input": {
		into: web.Input{},
		keys: fields{
			"/messages":           {Takes: "a", Bad: map[string]string{`[""]`: "", `[[]]`: "", `[null]`: "", `[7]`: "", `[{}]`: "", many(101, `"x"`): "413 too-large"}, Good: []string{`[[{"type":"text","text":"y"}]]`}},
			"/decisions":          {Takes: "a", Bad: map[string]string{`[null]`: "", `["c1"]`: "", `[[]]`: "", many(101, `{"target":"c1","action":"resume"}`): "413 too-large"}},
			"/answers":            {Takes: "a", Bad: map[string]string{`[null]`: "", `["c1"]`: "", many(101, `{"call":"c1","error":"x"}`): "413 too-large"}},
			"/decisions/0/target": {Takes: "s", Required: true, Max: 256, Bad: map[string]string{`""`: "", `"c9"`: "404 call-not-found", `"c1\u0000"`: ""}},
			"/decisions/0/id":     {Takes: "s", Max: 256, Bad: map[string]string{`"a\u0000b"`: ""}, Good: []string{`""`, `null`, badinput.Text(256)}},
			"/decisions/0/action": {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"Resume"`: "", `"approve"`: "", `"resume "`: ""}},
			"/decisions/0/result": {Takes: anyJSON},
			"/decisions/0/reason": {Takes: "s", Good: []string{`"\u0000\u202e"`, `null`}},
			"/answers/0/call":     {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"c9"`: "404 call-not-found", `"C1"`: "404 call-not-found", badinput.Text(5000): "404 call-not-found"}},
			"/answers/0/approval": {Takes: "s", Bad: map[string]string{`"a9"`: "404 approval-not-found", badinput.Text(5000): "404 approval-not-found"}, Good: []string{`""`, `null`}},
			"/answers/0/id":       {Takes: "s", Max: 256},
			"/answers/0/result":   {Takes: anyJSON, Good: []string{`false`, `""`, `0`, `null`, `1e400`}},
			"/answers/0/error":    {Takes: "s", Required: true, Good: []string{`"no","result":null,"rerun":null`}},
			"/answers/0/rerun":    {Takes: "b", Required: true, Bad: map[string]string{`false`: "", `true`: "409 wrong-kind"}},
		},
		examples: []string{
			`{"messages":["x"]}`,
			`{"decisions":[{"target":"c1","id":"i1","action":"resume","reason":"r"}]}`,
			`{"decisions":[{"target":"c1","action":"cancel","result":false}]}`,
			`{"answers":[{"call":"c1","id":"i","result":true}]}`,
			`{"answers":[{"call":"c1","error":"no"}]}`,
			`REFUSED{"answers":[{"call":"c1","rerun":true}]}`,
			`REFUSED{"answers":[{"call":"c1","approval":"","rerun":true}]}`,
		},
	},
	"POST /v1/chat/{agent}": {
		into: web.Chat{},
		keys: fields{
			"/id": {Takes: "s", Required: true, Max: 128, Bad: map[string]string{`""`: "", `"a\u0000b"`: ""}, Good: []string{badinput.Text(128)}},
			"/messages": {Takes: "a", Required: true, Bad: map[string]string{`[]`: "", `[null]`: "", `[7]`: "", `[[]]`: "", `[{}]`: "", `[{"role":"user"}]`: "",
				`[{"id":"u","role":"user","parts":[{"type":"text","text":""}]}]`: "", `[{"id":"u","role":"system","parts":[]}]`: "",
				`[{"id":"` + noRun + `","role":"assistant","parts":[]}]`: "404 run-not-found"}},
			"/trigger":   {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"regenerate-message"`: ""}},
			"/messageId": {Takes: "s", Good: []string{`""`, `null`}},
		},
		examples: []string{`{"id":"t","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"x"}]}],"trigger":"submit-message","messageId":"m"}`},
	},
	"POST /v1/runs/{id}/cancel": {
		into: web.Note{}, optional: true, fits: "{}",
		keys:     fields{"/note": {Takes: "s", Good: []string{`""`, `null`, `"\u0000\u202e"`}}},
		examples: []string{`{"note":"x"}`, `{}`},
	},
	"POST /v1/runs/{id}/fork": {
		into: web.Fork{},
		keys: fields{
			"/at":             {Takes: "i", Required: true, Bad: map[string]string{`-1`: "", `99`: "", `9007199254740993`: ""}},
			"/key":            {Takes: "s", Max: 256, Bad: map[string]string{`"a\u0000b"`: ""}, Good: []string{badinput.Text(256)}},
			"/model":          {Takes: "o", Bad: map[string]string{`{}`: ""}},
			"/model/provider": {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"nobody"`: ""}},
			"/model/id":       {Takes: "s"},
			"/model/baseURL":  {Takes: "s"},
			"/model/file":     {Takes: "s"},
		},
		examples: []string{`{"at":0,"key":"f1"}`, `{"at":0,"model":{"provider":"script","id":"","baseURL":"","file":"model.jsonl"}}`},
	},
	"POST /v1/callbacks/{token}": {
		into: web.CallbackAnswer{},
		keys: fields{
			"/result": {Takes: anyJSON, Good: []string{`null`, `""`, `1e400`}},
			"/error":  {Takes: "s", Required: true, Good: []string{`""`, `"","result":null`}},
		},
		examples: []string{`{"result":{"n":1.10}}`, `{"error":"x"}`},
	},
	"POST /v1/approvals/{id}/decision": {
		into: web.Verdict{},
		keys: fields{
			"/action":               {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"Approve"`: "", `"cancel"`: "", `"fail"`: "", `"resume"`: "", `"approve "`: ""}},
			"/args":                 {Takes: "o", Kinds: "400 edit-refused", Says: "arguments", Bad: map[string]string{`{"amount":"5"}`: "400 edit-refused", `{"amount":1.5}`: "400 edit-refused", `{"amount":1e999}`: "400 edit-refused", `{}`: "400 edit-refused"}},
			"/result":               {Takes: anyJSON},
			"/note":                 {Takes: "s", Good: []string{`""`, `null`, `"\u0000\u202e"`, `"n","args":null,"result":null`}},
			"/digest":               {Takes: "s", Bad: map[string]string{`"x"`: "409 request-changed", `"` + xDigest + `"`: "409 request-changed"}, Good: []string{`""`, `null`}},
			"/tool":                 {Takes: "s", Bad: map[string]string{`"pay"`: "409 wrong-kind", `"other"`: "409 wrong-kind"}, Good: []string{`""`, `null`}},
			"/grant":                {Takes: "o", Bad: map[string]string{}},
			"/grant/when":           {Takes: "a", Bad: map[string]string{`[null]`: "400 grant-refused"}},
			"/grant/uses":           {Takes: "i", Bad: map[string]string{`-1`: "400 grant-refused", `10`: "400 grant-refused"}},
			"/grant/seconds":        {Takes: "i", Bad: map[string]string{`-1`: "400 grant-refused"}},
			"/grant/until":          {Takes: "s", Bad: map[string]string{`"yesterday"`: "", `"2020-01-01T00:00:00Z"`: "400 grant-refused", `""`: ""}},
			"/grant/when/0/path":    {Takes: "s", Says: "when", Bad: map[string]string{`""`: refused, `"amount"`: refused, `"/~2"`: refused, `null`: refused, `"/a\u0000"`: refused, badinput.Text(5000): refused}},
			"/grant/when/0/eq":      {Takes: anyJSON, Bad: map[string]string{`null`: refused, `6`: refused, `"5"`: refused}},
			"/grant/when/1/ne":      {Takes: anyJSON, Bad: map[string]string{`5`: refused, `5.0`: refused}},
			"/grant/when/2/gt":      {Takes: "n", Kinds: refused, Bad: map[string]string{`5`: refused, `1e999`: refused}},
			"/grant/when/3/gte":     {Takes: "n", Kinds: refused, Bad: map[string]string{`6`: refused}},
			"/grant/when/4/lt":      {Takes: "n", Kinds: refused, Bad: map[string]string{`5`: refused, `-0`: refused}},
			"/grant/when/5/lte":     {Takes: "n", Kinds: refused, Bad: map[string]string{`4`: refused}},
			"/grant/when/6/in":      {Takes: "a", Bad: map[string]string{`[]`: refused, `[6]`: refused, `null`: refused}},
			"/grant/when/7/matches": {Takes: "s", Says: "when", Bad: map[string]string{`""`: refused, `"("`: refused, `"b"`: refused, badinput.Text(5000): refused}},
		},
		examples: []string{
			`{"action":"approve","note":"n","digest":"","tool":""}`,
			`{"action":"edit","args":{"amount":3}}`,
			`REFUSED{"action":"approve","result":true}`,
			`{"action":"approve","grant":{"uses":1,"seconds":60,"until":"` + until + `","when":[{"path":"/amount","eq":5},{"path":"/amount","ne":1},{"path":"/amount","gt":1},{"path":"/amount","gte":1},{"path":"/amount","lt":9},{"path":"/amount","lte":9},{"path":"/amount","in":[5]},{"path":"/to","matches":"a"}]}}`,
		},
	},
	"POST /v1/runs/{id}/calls/{call}/undo": {
		into: struct{}{}, optional: true, fits: "{}",
		examples: []string{`REFUSED{}`},
	},
	"PUT /v1/people/{id}": {
		into: people.Form{}, fits: "{}",
		keys: fields{
			"/groups": {Takes: "a", Bad: map[string]string{`["finance"]`: "", `["user:ana"]`: "", `[null]`: "", `[""]`: ""}, Good: []string{`[]`, `null`}},
			"/name":   {Takes: "s", Bad: map[string]string{`""`: "", `" "`: "", `"a\u202eb"`: "", badinput.Text(201): ""}, Good: []string{badinput.Text(200), `null`}},
			"/email":  {Takes: "s", Bad: map[string]string{`""`: "", `"ana"`: "", `"a@b@c"`: "", `"a b@c"`: "", `"a@b\r\nBcc: c@d"`: ""}},
			"/slack":  {Takes: "s", Bad: map[string]string{`""`: "", `"u012ABCDEF"`: "", `"T012ABCDEF"`: ""}, Good: []string{`null`}},
			"/notify": {Takes: "a", Bad: map[string]string{`["sms"]`: "", `["email","email"]`: "", `[null]`: ""}, Good: []string{`[]`}},
		},
		examples: []string{`{"groups":["group:finance"],"name":"Ana","email":"ana@example.com","slack":"U012ABCDEF","notify":["email"]}`, `{}`},
	},
	"POST /v1/blobs": {
		into: web.Blob{},
		keys: fields{
			"/mediaType": {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"image"`: "", `"image/png\r\nX: y"`: "", `"image/\u0000"`: ""}},
			"/bytes":     {Takes: "i", Required: true, Bad: map[string]string{`0`: "", `-1`: "", `100000001`: "413 too-large"}},
			"/sha256":    {Takes: "s", Required: true, Bad: map[string]string{`""`: "", `"` + strings.ToUpper(xDigest) + `"`: "", `"` + xDigest + `0"`: "", `"../../etc"`: ""}},
		},
		examples: []string{`{"mediaType":"image/png","bytes":1,"sha256":"` + xDigest + `"}`},
	},
}

// foreignIDs are texts that are no run's id.
func foreignIDs(code string) map[string]string {
	return map[string]string{`"x"`: code, `"` + noRun + `"`: code, `"` + noRun + `/.."`: code, `"` + noRun + `\u0000"`: code, `"T#other#RUN#x"`: code, badinput.Text(5000): code}
}

func many(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }

// badBench is a bench with a run that waits and one that is done, whose log is kept.
type badBench struct {
	*bench
	wait, done web.Run
	log        *bytes.Buffer
	definition string
	handler    http.Handler
}

func newBadBench(t *testing.T) *badBench {
	t.Helper()
	b := &badBench{log: &bytes.Buffer{}}
	b.bench = newBench(t, strings.ReplaceAll(pay+"\n"+pay, `{"amount": 5}`, `{"amount": 5, "to": "ana"}`), func(d *agent.Definition) {
		d.Permission.Grants, d.Permission.Bounds = agent.GrantsStanding, agent.StandingBounds{Pattern: true, Uses: 9}
	})
	b.backend.Log = slog.New(slog.NewTextHandler(b.log, nil))
	b.serve()
	b.handler = web.APIHandler(b.backend)
	require.Equal(t, http.StatusCreated, b.do("PUT /v1/blobs/"+xDigest, "x").status)
	b.done = b.finished("done")
	b.wait = b.start("wait")
	require.Eventually(t, func() bool { // from then on nothing moves
		h, err := b.Ports.Journal.Head(t.Context(), local.Tenant, b.wait.ID)
		records, failed := b.executions.Load(t.Context())
		ended := !slices.ContainsFunc(records, func(r asl.Record) bool {
			return strings.HasPrefix(r.Name, b.done.ID) && r.Status == asl.Running
		})
		parked := slices.ContainsFunc(records, func(r asl.Record) bool {
			return strings.HasPrefix(r.Name, b.wait.ID) && r.Wait != nil && r.Wait.Submitted
		})
		return err == nil && failed == nil && h.Token != "" && ended && parked
	}, time.Minute, time.Millisecond)
	def := definition(t)
	def.Name = "brought"
	data := must(json.Marshal(def))
	b.definition = string(data)
	return b
}

// good is an example with the ids of this bench.
func (b *badBench) good(example string) string {
	return strings.NewReplacer("DONE", b.done.ID, "DEFINITION", b.definition).Replace(strings.TrimPrefix(example, "REFUSED"))
}

// edge is a route of the bench.
func (b *badBench) edge(op string) *badinput.Edge {
	return &badinput.Edge{
		Code: invalidProblem, Quotes: true,
		Send: func(c badinput.Case) badinput.Answer {
			_, target, _ := strings.Cut(real(op, b.wait), " ")
			return b.answered(b.raw(op, target, string(c.Body)))
		},
		State: func() string {
			records := must(b.executions.Load(b.t.Context()))
			slices.SortFunc(records, func(a, b asl.Record) int { return strings.Compare(a.Name, b.Name) })
			return badinput.State(b.table, b.blobs, records, len(b.paid))
		},
		Observed: b.log.String,
	}
}

// answered is an answer as an edge gives it.
func (b *badBench) answered(got answer) badinput.Answer {
	a := badinput.Answer{Other: fmt.Sprint(got.header)}
	if got.status < 300 {
		return a
	}
	var p web.Problem
	require.NoError(b.t, json.Unmarshal([]byte(got.body), &p), got.body)
	problemIn(b.t, got, got.status, p.Type)
	a.Code, a.Message = fmt.Sprintf("%d %s", p.Status, p.Type), p.Detail
	return a
}

// Every key of every body, wrong in every way: the error that is due, which names the key, and nothing is written, sent
// or told to others. The document does not allow a body either that the server refuses for its form.
func TestBadBodies(t *testing.T) {
	d, b := readDocument(t), newBadBench(t)
	count := 0
	for _, op := range slices.Sorted(maps.Keys(bodies)) {
		of, e := bodies[op], b.edge(op)
		for _, example := range of.examples {
			for _, c := range badinput.Cases(b.good(example), of.keys) {
				e.RequireRefused(t, c)
				count++
				if ofForm.MatchString(c.What) && c.Code == "" && !strings.HasPrefix(example, "REFUSED") && !eitherOr.MatchString(c.String()) {
					require.Error(t, valid(d.body(op).Schema.Schema(), c.Body), "%s %s: %s", op, c, c.Body)
				}
			}
		}
		good := b.good(of.examples[0])
		for _, c := range badinput.WholeCases(good) {
			if len(bytes.TrimSpace(c.Body)) == 0 && of.optional {
				continue
			}
			e.RequireRefused(t, c)
			count++
		}
		if of.fits == "" {
			e.RequireRefused(t, badinput.Case{What: "an empty object", Body: []byte(`{}`), KeyNotNamed: true, Code: emptyCode[op]})
		}
	}
	require.Equal(t, b.wait, b.waitUntilParked(b.wait.ID))
	t.Logf("%d bodies of %d routes", count, len(bodies))
}

// ofForm are the cases that a schema tells from good bodies.
var ofForm = regexp.MustCompile("^(left out|of kind|an unknown key)")

// eitherOr are keys of which a body has one or another. The document says so in words, as generators make no types of it.
var eitherOr = regexp.MustCompile("^(/message/1/data|/message/2/blob|/answers/0/(call|error)): left out$")

// emptyCode is what an empty object gives where that is not what a wrong text gives.
var emptyCode = map[string]string{"POST /v1/runs": "400 unknown-agent"}

// What the table says is good is taken, and valid by the document: a case is wrong in the one way that it says. Each
// has a bench of its own.
func TestGoodBodies(t *testing.T) {
	d := readDocument(t)
	for op, of := range bodies {
		for _, example := range of.examples {
			if strings.HasPrefix(example, "REFUSED") {
				continue
			}
			b := newBadBench(t)
			b.edge(op).RequireAccepted(t, op+" "+example, b.good(example))
			require.NoError(t, valid(d.body(op).Schema.Schema(), []byte(b.good(example))), b.good(example))
			for key, f := range of.keys {
				for _, value := range f.Good {
					if badinput.Has(b.good(example), key) {
						b := newBadBench(t)
						b.edge(op).RequireAccepted(t, op+" "+key+" "+value, badinput.With(b.good(example), key, value))
					}
				}
			}
		}
	}
}

// A route that takes a body, or a key of one, that is in no table fails, and so does a table of what no route reads.
func TestBadBodiesAreComplete(t *testing.T) {
	d, code := readDocument(t), ""
	files := must(filepath.Glob("*.go"))
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			text := must(os.ReadFile(name))
			code += string(text)
		}
	}
	require.Equal(t, len(bodies), strings.Count(code, "](w, r, ")-1, "endpoints that read a body, and their tables")
	for _, op := range web.APIRoutes() {
		_, has := bodies[op]
		require.Equal(t, d.body(op) != nil, has, op)
	}
	for op, of := range bodies {
		// The schema of that name has what the type has (TestSchemasHaveWhatTheTypesHave), and the server takes that.
		ref := d.body(op).Schema.GetReference()
		require.Equal(t, strings.TrimPrefix(ref, componentPrefix), schemaName(reflect.TypeOf(of.into)), op)
		var in, shown []string
		for key := range of.keys {
			in = append(in, key)
			if slices.ContainsFunc(of.examples, func(e string) bool {
				return badinput.Has(strings.NewReplacer("REFUSED", "", "DEFINITION", "{}").Replace(e), key)
			}) {
				shown = append(shown, key)
			}
		}
		require.ElementsMatch(t, in, shown, "%s: each key stands in an example", op)
		in = slices.DeleteFunc(in, func(key string) bool { return strings.HasPrefix(key, "/message/") }) // blocks: see below
		for i, key := range in {
			in[i] = place.ReplaceAllString(key, "/0")
		}
		require.ElementsMatch(t, badinput.Keys(reflect.TypeOf(of.into), of.opaque...), in, op)
	}
	of := []string{"/type", "/text", "/name", "/mediaType", "/data", "/blob"} // a message's block
	require.ElementsMatch(t, of, badinput.Keys(web.BlockType))
}

// place is one in a list.
var place = regexp.MustCompile(`/\d+`)

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
	"newest":   slices.Concat(anything, []string{"2", "true", "00"}),
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
	for _, op := range web.APIRoutes() {
		_, path, _ := strings.Cut(op, " ")
		_, good, _ := strings.Cut(real(op, b.wait), " ")
		for i, part := range strings.Split(path, "/") {
			if !strings.HasPrefix(part, "{") {
				continue
			}
			for _, id := range hostileIDs {
				parts := strings.Split(good, "/")
				parts[i] = id
				// What is no digest is 400. Which call is meant is asked of a run that is done alone: 409.
				send(op, strings.Join(parts, "/"), 404, map[string]int{"{sha256}": 400, "{call}": 409, "{chat}": 204}[part])
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
	t.Logf("%d paths and queries of %d routes", count, len(web.APIRoutes()))
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
			if c.what == "a byte too large" && strings.Contains(op, "/chat/") { // it has the whole conversation: TestChatRefuses
				continue
			}
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
		id := must(url.PathUnescape(id))
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
