package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people"
)

// ChangeShown has pages show what a test makes of a request's document.
func (p *Pages) ChangeShown(change func(a approval.Approval, d *people.Document)) {
	p.changeShown = change
}

// defs are what the schemas of the tests refer to.
const defs = `"$defs": {
	"Kind": {"enum": ["full", "part"], "title": "How much", "description": "Of the order"},
	"Count": {"type": "integer"}, "a/b~c": {"$ref": "#/$defs/Count"}, "Circle": {"$ref": "#/$defs/Circle"},
	"Loop": {"allOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]},
	"Maybe": {"anyOf": [{"$ref": "#/$defs/Count"}, {"type": "null"}]}}, "definitions": {"Old": {"type": "boolean"}}`

func fieldsOf(t *testing.T, schema, object string) []field {
	t.Helper()
	all := newFields(json.RawMessage(schema), json.RawMessage(object), nil)
	require.NotEmpty(t, all)
	return all
}

// A field is as simple as its schema is once references are followed and null is left aside. Nothing becomes null where
// the member has to be there, and is left out elsewhere; what is not changed stays.
func TestFieldsOfReferencesAndAlternatives(t *testing.T) {
	type forms struct {
		kind     string
		anyType  bool
		nullable bool
		typed    string
		is       string
	}
	for schema, want := range map[string]forms{
		`{"type": "string"}`:                                              {kind: "text", typed: `12`, is: `"12"`},
		`{"$ref": "#/$defs/Count"}`:                                       {kind: "number", typed: `12`, is: `12`},
		`{"$ref": "#/$defs/a~1b~0c"}`:                                     {kind: "number", typed: `12`, is: `12`},
		`{"$ref": "#/definitions/Old"}`:                                   {kind: "choice", typed: `true`, is: `true`},
		`{"$ref": "#/$defs/Kind"}`:                                        {kind: "choice", typed: `"part"`, is: `"part"`},
		`{"anyOf": [{"type": "string"}, {"type": "null"}]}`:               {kind: "text", nullable: true, typed: `12`, is: `"12"`},
		`{"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Count"}]}`:        {kind: "number", nullable: true, typed: `12`, is: `12`},
		`{"$ref": "#/$defs/Maybe"}`:                                       {kind: "number", nullable: true, typed: `12`, is: `12`},
		`{"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]}`:         {kind: "choice", nullable: true, typed: `"full"`, is: `"full"`},
		`{"type": ["string", "null"]}`:                                    {kind: "text", nullable: true, typed: `12`, is: `"12"`},
		`{"type": ["string", "null"], "enum": ["x", null]}`:               {kind: "choice", nullable: true, typed: `"x"`, is: `"x"`},
		`{"anyOf": [{"type": "array"}, {"type": "null"}]}`:                {kind: "json", nullable: true, typed: `[1]`, is: `[1]`},
		`{"type": "string", "anyOf": [{"format": "x"}, {"pattern": 1}]}`:  {kind: "text", typed: `12`, is: `"12"`},
		`{"oneOf": [{"type": "string"}, {}, {"type": "null"}]}`:           {kind: "json", anyType: true, nullable: true, typed: `12`, is: `12`},
		`{"anyOf": [{"type": "string"}, {"type": "integer"}]}`:            {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"type": ["string", "integer"]}`:                                 {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"$ref": "#/$defs/None"}`:                                        {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"$ref": "#/$defs/Circle"}`:                                      {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"$ref": "#anchor"}`:                                             {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"$ref": "other.json"}`:                                          {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"allOf": [{"$ref": "#/$defs/Count"}]}`:                          {kind: "number", typed: `12`, is: `12`},
		`{"allOf": [{"type": "string"}, {"pattern": "x"}]}`:               {kind: "text", typed: `12`, is: `"12"`},
		`{"allOf": [{"pattern": "x"}, {"$ref": "#/$defs/Kind"}]}`:         {kind: "choice", typed: `"part"`, is: `"part"`},
		`{"type": "string", "allOf": [{"$ref": "#/$defs/Kind"}]}`:         {kind: "choice", typed: `"part"`, is: `"part"`},
		`{"allOf": [{"type": "string"}, {"type": "integer"}]}`:            {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"allOf": [{"$ref": "#/$defs/Maybe"}, {"minimum": 1}]}`:          {kind: "number", nullable: true, typed: `12`, is: `12`},
		`{"allOf": [{"$ref": "#/$defs/Maybe"}, {"type": "integer"}]}`:     {kind: "number", typed: `12`, is: `12`},
		`{"allOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}]}`: {kind: "json", anyType: true, typed: `12`, is: `12`},
		`{"const": "full"}`:                                               {kind: "choice", typed: `"full"`, is: `"full"`},
		`{"oneOf": [{"const": "full"}, {"const": 2}]}`:                    {kind: "choice", typed: `2`, is: `2`},
		`{"type": "string", "anyOf": [{"const": "a"}, {"const": "b"}]}`:   {kind: "choice", typed: `"b"`, is: `"b"`},
		`{"anyOf": [{"const": "a"}, {"type": "null"}]}`:                   {kind: "choice", nullable: true, typed: `"a"`, is: `"a"`},
		`{"anyOf": [{"const": "a"}, {"type": "string"}]}`:                 {kind: "json", anyType: true, typed: `12`, is: `12`},
		`true`: {kind: "json", anyType: true, typed: `12`, is: `12`},
	} {
		read := func(required, object, typed string) string {
			all := fieldsOf(t, `{"required": [`+required+`], "properties": {"m": `+schema+`}, `+defs+`}`, object)
			require.Len(t, all, 1)
			require.Equal(t, want.kind, all[0].Kind, schema)
			require.Equal(t, want.anyType, all[0].AnyType, schema)
			require.Equal(t, required != "" && !want.nullable, all[0].Required, schema)
			got, err := readFields(all, map[string]string{"arg.m": typed})
			require.NoError(t, err, schema)
			return string(got)
		}
		is, nothing := `{"m":`+want.is+`}`, `{}`
		require.Equal(t, is, read(``, `{}`, want.typed), schema)
		require.Equal(t, is, read(`"m"`, `{}`, want.typed), schema)
		require.Equal(t, nothing, read(``, `{}`, ""), schema)
		require.Equal(t, nothing, read(``, is, ""), schema)
		if want.nullable {
			nothing = `{"m":null}`
			require.Equal(t, nothing, read(``, nothing, ""), "what is not changed stays: "+schema)
			require.Equal(t, nothing, read(`"m"`, is, ""), schema)
		}
		require.Equal(t, nothing, read(`"m"`, `{}`, ""), schema)
	}
}

// An object's members may be described in several parts, one of them in two.
func TestFieldsOfSeveralParts(t *testing.T) {
	all := fieldsOf(t, `{"type": "object", "required": ["own"], "properties": {"own": {"type": "string"}, "kind": {"title": "How much"}},
		"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"kind": {"enum": ["full", "part"]}}, "required": ["id"]}],
		"$defs": {"Base": {"type": "object", "properties": {"id": {"type": "integer"}}}}}`, "")
	var got []string
	for _, f := range all {
		got = append(got, fmt.Sprint(f.Label, " ", f.Kind, " ", f.Required))
	}
	require.Equal(t, []string{"own text true", "kind (How much) choice false", "id number true"}, got)
}

// The words of a field are those beside the reference, else those that it leads to. The members of an object may stand
// behind a reference, too, and keep their order.
func TestFieldsOfAReferencedObject(t *testing.T) {
	all := fieldsOf(t, `{"$ref": "#/$defs/In", "$defs": {
		"In": {"type": "object", "required": ["z"], "properties": {
			"z": {"$ref": "#/$defs/Kind", "description": "Its own"}, "a": {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]}}},
		"Kind": {"enum": ["full", "part"], "title": "How much", "description": "Of the order"}}}`, "")
	require.Len(t, all, 2)
	require.Equal(t, []string{"z (How much)", "Its own", "a (How much)", "Of the order"},
		[]string{all[0].Label.String(), all[0].Description.String(), all[1].Label.String(), all[1].Description.String()})
	var values []string
	for _, c := range append(all[0].Choices, all[1].Choices...) {
		values = append(values, c.Value)
	}
	require.Equal(t, []string{"", `"full"`, `"part"`, "", `"full"`, `"part"`}, values)
}

// No two values look alike, however deep their members are: a page indents a few levels, and marks the others.
func TestDeepMembersAreToldApart(t *testing.T) {
	shown := func(inner string) (all []string) {
		rows, _ := people.ReadArguments([]byte(strings.Repeat(`{"a":`, 6)+inner+strings.Repeat("}", 6)), nil)
		rows = newArguments(rows).Lines
		for _, l := range rows {
			require.LessOrEqual(t, l.Depth, 4, "as deep as style.css indents on a phone, too")
			all = append(all, fmt.Sprint(l.Depth, l.Label, l.Value))
		}
		return all
	}
	require.NotEqual(t, shown(`{"dry": {"run": true, "force": false}}`), shown(`{"dry": {"run": true}, "force": false}`))
}

// A form is refused, or has the page's own fields and each once: written again it is the same.
func FuzzReadForm(f *testing.F) {
	for _, seed := range []string{"form=x&action=approve&note=n", "action=approve&action=deny", "zzz=1", "note=%zz", "note=a;b", "note=%00%ff", "args=%7B%7D&action=edit", "text=" + strings.Repeat("x", 1001), "key=k"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, body string, proof bool) {
		read := func(body string) (map[string]string, error) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return readForm(r, proof)
		}
		got, err := read(body)
		if err != nil {
			return
		}
		v := url.Values{}
		for name, value := range got {
			require.True(t, slices.Contains([]string{"form", "action", "note", "args", "result", "tool", "text"}, name) || proof && name == "key", name)
			v.Set(name, value)
		}
		again, err := read(v.Encode())
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

// views are the views of all pages.
func views() map[string]any {
	return map[string]any{
		"plain.html": &plainPage{}, "approval.html": &requestPage{}, "signin.html": &signInPage{}, "run.html": &runPage{},
		"queue.html": &queuePage{}, "together.html": &togetherPage{}, "runs.html": &runsPage{}, "start.html": &startPage{}, "chat.html": &runPage{},
		"agents.html": &agentsPage{}, "agent.html": &agentPage{}, "audit.html": &auditPage{},
	}
}

// fill sets everything in v that has a text to text, and everything else to something that is true.
func fill(v reflect.Value, text string) { fillTo(v, text, 12) }

// fillTo is fill to a depth: parts of some views have parts of their own kind.
func fillTo(v reflect.Value, text string, depth int) {
	if depth == 0 {
		return
	}
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous {
				fillTo(v.Field(i), text, depth-1)
			}
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillTo(v.Elem(), text, depth-1)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillTo(v.Index(0), text, depth-1)
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(1)
	}
}

// Templates name what their views have, whichever way through them, and whatever a view holds is text on the page.
func TestB5PagesShowTheirViews(t *testing.T) {
	hostile := `"><script>alert(1)</script>`
	for _, pages := range []*pageSet{linkPages(), consolePages()} {
		for name, view := range views() {
			if pages.framed.Lookup(name) == nil {
				continue
			}
			empty, err := pages.render(name, view)
			require.NoError(t, err, name)
			for _, text := range []string{
				"text", "media", "tool_use", "tool_result", "tools", "outcome", "rtl", "escape", "escalated", "running", hostile,
			} {
				fill(reflect.ValueOf(view).Elem(), text)
				page, err := pages.render(name, view)
				require.NoError(t, err, name)
				require.Equal(t, strings.Count(string(empty), "<script"), strings.Count(string(page), "<script"), name)
				if text == hostile {
					require.Contains(t, string(page), "&lt;script&gt;alert(1)", name)
				}
			}
		}
	}
}

// The console's script makes no HTML, runs no text, and speaks to nobody else.
func TestConsoleScriptMakesNoHTML(t *testing.T) {
	script := readFile("console/console.js")
	for _, never := range []string{
		"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "createContextualFragment", "http:",
		"https:", "import(", "importScripts", "postMessage", "outerHTML =",
	} {
		require.NotContains(t, script, never)
	}
}

// What differs is read as it is sent: without the white space of the field in which it was edited, and without escaped
// quotes where no quotes stand around it.
func TestChangesAreCompact(t *testing.T) {
	all, err := findChanges(json.RawMessage("{\n  \"tags\": [\n    \"a\",\n    \"b\"\n  ],\n  \"n\": 1\n}"),
		json.RawMessage(`{"tags": [ "a" ], "n": "1"}`))
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, `["a","b"]`, all[0].Was.String())
	require.Equal(t, `["a"]`, all[0].Is.String())
	require.Equal(t, []string{"1", `"1"`}, []string{all[1].Was.String(), all[1].Is.String()}, "a text is no number")
}
