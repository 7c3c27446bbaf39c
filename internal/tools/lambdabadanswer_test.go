package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/tool"
)

// Every key of what a function gives: a result of the form that has a key which cannot be read is the function's error
// and names it, and what is not of the form is its text, as it is.
func TestBadResults(t *testing.T) {
	const asIs, taken, wrong = "as it is", "taken", "an error"
	anything := badinput.Field{Takes: "snbao"}
	e := &badinput.Edge{State: func() string { return "" }, Observed: func() string { return "" }}
	e.Send = func(c badinput.Case) badinput.Answer {
		d := readFunctionResult(c.Body)
		switch {
		case d.IsError && strings.HasPrefix(d.Content, "the function ran, but its result cannot be read: "):
			return badinput.Answer{Code: wrong, Message: d.Content}
		case d.Content == string(c.Body):
			return badinput.Answer{Code: asIs}
		}
		return badinput.Answer{Code: taken}
	}
	for good, keys := range map[string]map[string]badinput.Field{
		`{"text":"a","media":[{"name":"n","mediaType":"image/png","data":"aGk="}],"patch":[{"path":"/a","value":1}]}`: {
			"/text": anything, "/media": {Takes: "ao", Bad: map[string]string{`{}`: "", `[null]`: "", `[[]]`: "", `[{"mediaType":"a/b"}]`: "", `[{"data":"aGk="}]`: ""}},
			"/media/0/name": {Takes: "s", Says: "media"}, "/media/0/mediaType": {Takes: "s", Required: true, Says: "media", Bad: map[string]string{`""`: ""}},
			"/media/0/data": {Takes: "s", Required: true, Says: "media", Bad: map[string]string{`""`: ""}},
			"/patch":        {Takes: "a"}, "/patch/0": {Takes: "o", Says: "patch"}, "/patch/0/path": {Takes: "s", Says: "patch"}, "/patch/0/value": anything,
		},
		`{"json":{"n":1.0}}`: {"/json": anything}, `{"error":"no"}`: {"/error": anything},
		`{"suspend":{"id":"i","action":"a","message":"m","parameters":{},"responseSchema":{"type":"object"},"mode":"replay","memo":"k"}}`: {
			"/suspend": {Takes: "o"}, "/suspend/id": {Takes: "s", Says: "suspend"}, "/suspend/action": {Takes: "s", Says: "suspend"}, "/suspend/message": {Takes: "s", Says: "suspend"},
			"/suspend/parameters": anything, "/suspend/responseSchema": anything, "/suspend/mode": {Takes: "s", Says: "suspend"}, "/suspend/memo": {Takes: "s", Says: "suspend"},
		},
	} {
		for _, c := range badinput.Cases(good, keys) {
			top := strings.Count(c.Key, "/") == 1
			switch {
			case strings.HasPrefix(c.What, "a raw "), strings.HasPrefix(c.What, "no number, "), top && c.What == "in capitals", top && c.What == "an unknown key":
				c.Code = asIs // Lambda hands on what is no JSON, and so do we
			case c.What == "an unknown key" && strings.HasPrefix(c.Key, "/json"):
				c.Code = taken
			case !top && (strings.HasPrefix(c.What, "given twice") || c.What == "in capitals"):
				c.Code = taken // the last one counts
			case strings.HasPrefix(c.What, "given twice"), c.What == "an unknown key":
				c.Code, c.Says = wrong, strings.Split(c.Key, "/")[1]
			case keys[c.Key].Takes == anything.Takes, strings.Contains(keys[c.Key].Takes, "s") && unreadable[c.What]:
				c.Code = taken // what is no text is made one when it is stored
			default:
				c.Code, c.Says = wrong, strings.Split(c.Key, "/")[1]
			}
			c.KeyNotNamed = c.Code != wrong
			e.RequireRefused(t, c)
		}
	}
}

// unreadable are texts that are no UTF-8, which encoding/json mends.
var unreadable = map[string]bool{"bytes that are no UTF-8": true, "a cut character": true, "half a surrogate pair": true, "halves the wrong way round": true}

// A key that is null is one that is not there: so some languages spell it.
func TestNulls(t *testing.T) {
	for given, want := range map[string]string{
		`{"text":"a","json":null,"error":null,"media":null,"suspend":null,"patch":null}`: "a", `{"text":null,"json":{"n":1.0}}`: `{"n":1.0}`, `{"json":null}`: "null", `{"text":null}`: "null",
		`{"text":null,"error":"no"}`: "no",
	} {
		d := readFunctionResult([]byte(given))
		require.Equal(t, want, d.Content, given)
		require.Equal(t, want == "no", d.IsError, given)
		require.Nil(t, d.Suspend, given)
		require.Nil(t, d.Media, given)
		require.Nil(t, d.Patch, given)
	}
}

// Every key of what Lambda says of a function that failed: it failed, in its own words where they can be read, or
// nobody knows what it did.
func TestBadFailures(t *testing.T) {
	const good = `{"errorType":"ValueError","errorMessage":"no","stackTrace":["at canary"],"requestId":"r"}`
	keys := map[string]badinput.Field{"/errorType": {}, "/errorMessage": {}, "/stackTrace": {}, "/requestId": {}}
	for _, c := range append(badinput.Cases(good, keys), badinput.WholeCases(good)...) {
		d, err := functionError(c.Body)
		require.NoError(t, err, c)
		require.True(t, d.IsError, c)
		require.True(t, strings.HasPrefix(d.Content, "the function failed: "), c)
		require.NotContains(t, d.Content, "\x01", c)
		require.NotContains(t, d.Content, "at canary", c)
		require.Less(t, len(d.Content), 9000, c)
	}
	for _, kind := range []string{"Sandbox.Timedout", "Runtime.ExitError", "Runtime.OutOfMemory", "Extension.Crash"} {
		_, err := functionError([]byte(`{"errorType":"` + kind + `","errorMessage":7}`))
		require.ErrorAs(t, err, new(*tool.LostError), "%s with a message that is none: got %v", kind, err)
	}
}

// Whatever a function gives is a result: text that can be stored, or the function's error.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`null`, `"x"`, `{}`, `{"text":"x"}`, `{"json":{"n":1e400}}`, `{"error":"no"}`, `{"media":{"mediaType":"image/png","data":"aGk="}}`, `{"suspend":{"message":"m"}}`,
		`{"patch":[{"path":"/a","value":1}]}`, `{"text":"x","text":"y"}`, `{"text":"x","json":1}`, `{`, ``, "\xff", `{"text":"\ud800"}`, `{"media":[null]}`, `{"suspend":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := readFunctionResult(payload)
		_, err := json.Marshal(d)
		require.NoError(t, err)
		for _, m := range d.Media {
			require.True(t, d.IsError || m.MediaType != "" && m.Data != "")
		}
		said, err := functionError(payload)
		require.True(t, err != nil || said.IsError)
	})
}
