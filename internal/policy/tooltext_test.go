package policy

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

const toolLook = `{"server_name":"local","tool_name":"look"}`

func TestReadToolText(t *testing.T) {
	for _, tt := range []struct {
		name, in   string
		text, body string
		called     bool
		open       bool // the first tag has no end
		thoughts   []Thought
	}{
		{name: "nothing"},
		{name: "a text", in: " It is <b>late</b>. ", text: "It is <b>late</b>."},
		{name: "a call", in: "<tool>\n {} \n</tool>", body: "{}", called: true},
		{name: "a call in a text", in: "I look.\n<tool>{}</tool> Now.", text: "I look.\n Now.", body: "{}", called: true},
		{name: "two calls", in: "a<tool>1</tool>b<tool>2</tool>c", text: "abc", body: "1", called: true},
		{name: "a second one without an end", in: "a<tool>1</tool>b<tool>2", text: "ab", body: "1", called: true},
		{name: "a first one without an end", in: "a<tool>{<tool>2", text: "a", body: "{<tool>2", called: true, open: true},
		{name: "the end of none", in: "a</tool>b", text: "a</tool>b"},
		{name: "other spellings", in: "<Tool>1</Tool> < tool>2</tool>", text: "<Tool>1</Tool> < tool>2</tool>"},
		{name: "a tag that begins twice", in: "<to<tool>1</tool>", text: "<to", body: "1", called: true},
		{name: "thinking", in: " <thinking> 1 < 2 > 0 </thinking> So. ", text: "So.", thoughts: []Thought{{Text: "1 < 2 > 0"}}},
		{name: "a call in thinking", in: "<thinking><tool>1</tool></thinking>a", text: "a", thoughts: []Thought{{Text: "<tool>1</tool>"}}},
		{name: "thinking in a call", in: "<tool><thinking>1</tool></thinking>", text: "</thinking>", body: "<thinking>1", called: true},
		{name: "thinking without an end", in: "a<thinking>b<tool>1</tool>", text: "a", thoughts: []Thought{{Text: "b<tool>1</tool>", After: 1}}},
		{
			name: "thinking here and there", in: "  ä <thinking>1</thinking>b<tool>x</tool><thinking> </thinking> c <thinking>2</thinking> ", text: "ä b c",
			body: "x", called: true, thoughts: []Thought{{Text: "1", After: 3}, {Text: "2", After: 6}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ReadToolText(tt.in)
			require.Equal(t, tt.text, got.Text)
			require.Equal(t, tt.body, got.Body)
			require.Equal(t, tt.called, got.Called)
			require.Equal(t, tt.called && !tt.open, got.Closed)
			for i := range got.Thoughts {
				got.Thoughts[i].at = 0
			}
			require.Equal(t, tt.thoughts, got.Thoughts)
		})
	}
}

// toolTexts draws texts full of tags, whole and broken.
var toolTexts = rapid.Custom(func(t *rapid.T) string {
	pieces := []string{
		"<tool>", "</tool>", "<thinking>", "</thinking>", "<", ">", "<too", "l>", "</t", "a", " ", "\n", "ä", "€", "{}", toolLook, "&", "\x80",
		"<tool_name>look</tool_name>", "<server_name>local</server_name>", `"tool_name": "`,
	}
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
})

// TestToolStreamIsTheWholeText: wherever a text is cut, its stream ends with what the whole text is, and its pieces put together are that.
func TestToolStreamIsTheWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := toolTexts.Draw(t, "text")
		var cuts []int
		if len(text) > 0 {
			cuts = rapid.SliceOf(rapid.IntRange(0, len(text))).Draw(t, "cuts")
		}
		requireSameStream(t, text, cuts)
	})
}

func requireSameStream(t require.TestingT, text string, cuts []int) {
	slices.Sort(cuts)
	var s ToolStream
	var deltas []agent.Delta
	from := 0
	for _, to := range append(cuts, len(text)) {
		deltas = append(deltas, s.Write(text[from:to])...)
		from = to
	}
	last, got := s.Close()
	deltas = append(deltas, last...)
	want := ReadToolText(text)
	// Where a piece of text was cut is nobody's concern.
	for n := range len(text) + 1 {
		require.Equal(t, want.offsetOf(n), got.offsetOf(n))
	}
	want.kept, got.kept = nil, nil
	require.Equal(t, want, got)
	requireDeltas(t, got, deltas, utf8.ValidString(text))
}

// requireDeltas: put together, what is said, thought and called is the whole of each, a call begins with its start, and no piece ends within a character.
func requireDeltas(t require.TestingT, whole ToolText, deltas []agent.Delta, valid bool) {
	said := map[agent.DeltaKind]string{}
	called := false
	for _, d := range deltas {
		require.False(t, valid && !utf8.ValidString(d.Text), "%q", d.Text)
		said[d.Kind] += d.Text
		start := d == agent.Delta{Kind: agent.DeltaCall}
		require.Equal(t, d.Kind == agent.DeltaCall && !called, start)
		require.True(t, d.Text != "" || d.Name != "" || start)
		called = called || start
	}
	require.Equal(t, whole.Called, called)
	require.Equal(t, whole.Text, strings.TrimSpace(said[agent.DeltaText]))
	require.Equal(t, whole.Body, strings.TrimSpace(said[agent.DeltaCall]))
	var thoughts []string
	for _, thought := range whole.Thoughts {
		thoughts = append(thoughts, strings.Fields(thought.Text)...)
	}
	require.Equal(t, strings.Join(thoughts, ""), strings.Join(strings.Fields(said[agent.DeltaReasoning]), ""))
}

func TestToolTextCall(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       TextCall
		missing    string // the field
		problem    string // a part of the error, as an expression
	}{
		{name: "JSON", body: `{"server_name": "local", "tool_name": " look ", "arguments": {"a" : 1.10}, "more": 1}`, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"a":1.10}`)}},
		{name: "no arguments", body: toolLook, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{}`)}},
		{name: "none at all", body: `{"server_name":"local","tool_name":"look","arguments":null}`, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{}`)}},
		{name: "arguments that are none", body: `{"server_name":"local","tool_name":"look","arguments":[1]}`, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`[1]`)}}, // the gate says so
		{name: "another server", body: `{"server_name":"files","tool_name":"read"}`, want: TextCall{Server: "files", Tool: "read", Arguments: json.RawMessage(`{}`)}},
		{name: "an empty body", body: "", missing: "server_name", problem: "^server_name is missing$"},
		{name: "no server", body: `{"tool_name":"look"}`, missing: "server_name", problem: "missing"},
		{name: "a blank server", body: `{"server_name":" ","tool_name":"look"}`, missing: "server_name", problem: "missing"},
		{name: "no tool", body: `{"server_name":"local","tool_name":null}`, missing: "tool_name", problem: "^tool_name is missing$"},
		{name: "a server that is no text", body: `{"server_name":1,"tool_name":"look"}`, problem: "^server_name is not a text$"},
		{name: "broken JSON", body: `{"server_name":"local",}`, problem: "not one JSON object"},
		{name: "a key twice", body: `{"tool_name":"a","tool_name":"b"}`, problem: "not one JSON object"},
		{name: "two objects", body: `{} {}`, problem: "not one JSON object"},
		{name: "a list", body: `[]`, problem: "text outside"},
		{name: "words", body: `look`, problem: "neither a JSON object nor elements"},
		{name: "elements", body: "<server_name>local</server_name>\n<tool_name> look </tool_name><arguments><a>1</a><b>x</b></arguments>", want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"a":"1","b":"x"}`), Elements: true}},
		{name: "elements with JSON", body: `<server_name>local</server_name><tool_name>look</tool_name><arguments> {"a": 1} </arguments>`, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"a":1}`)}},
		{name: "elements without arguments", body: `<server_name>local</server_name><tool_name>look</tool_name><arguments/>`, want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{}`)}},
		{
			name: "elements within elements", body: `<server_name>local</server_name><tool_name>look</tool_name><arguments><o><x>1</x><x>2</x><x>3</x></o><e></e></arguments>`,
			want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"e":"","o":{"x":["1","2","3"]}}`), Elements: true},
		},
		{
			name: "entities", body: `<server_name>local</server_name><tool_name>look</tool_name><arguments><a>&lt;&#65;&#x42;&gt; &quot;&apos;&amp;amp;</a><b>R&D & S &nbsp; &#0; &#xD800; &</b></arguments>`,
			want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"a":"<AB> \"'&amp;","b":"R&D & S &nbsp; &#0; &#xD800; &"}`), Elements: true},
		},
		{
			name: "CDATA and comments", body: `<!-- so --><server_name>local</server_name><tool_name>look</tool_name><arguments><a kind="a>b">x<![CDATA[ <b>&amp;]] ]]>y</a></arguments>`,
			want: TextCall{Server: "local", Tool: "look", Arguments: json.RawMessage(`{"a":"x <b>&amp;]] y"}`), Elements: true},
		},
		{name: "an element without an end", body: `<server_name>local`, problem: "^<server_name> has no end$"},
		{name: "a wrong end", body: `<server_name>local</tool_name>`, problem: "^</tool_name> ends nothing that is open$"},
		{name: "a tag without an end", body: `<server_name`, problem: "^<server_name has no >$|has no >"},
		{name: "a bare angle", body: `<server_name>1 < 2</server_name>`, problem: "&lt;"},
		{name: "CDATA without an end", body: `<a><![CDATA[x]]</a>`, problem: "has no ]]>"},
		{name: "a name twice", body: `<tool_name>a</tool_name><tool_name>b</tool_name>`, problem: "stands there twice"},
		{name: "a name that is no text", body: `<tool_name><a/></tool_name>`, problem: "is not a text"},
		{name: "text beside elements", body: `<tool_name>a</tool_name><arguments>x<a/></arguments>`, problem: "text beside elements"},
		{name: "text beside calls", body: `<tool_name>a</tool_name>x`, problem: "text outside"},
		{name: "words for arguments", body: `<tool_name>a</tool_name><arguments>all of it</arguments>`, problem: "neither elements nor one JSON object"},
		{name: "a document type", body: `<!DOCTYPE a><tool_name>a</tool_name>`, problem: "&lt;"},
		{name: "too deep", body: strings.Repeat("<a>", 70), problem: "deeper than"},
		{name: "too long", body: "{" + strings.Repeat(" ", maxToolBody), problem: "at most 10485760"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ToolText{Body: tt.body, Called: true, Closed: true}.Call(agent.MissingServerError)
			var problem *TextCallError
			if tt.problem == "" {
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
				return
			}
			require.ErrorAs(t, err, &problem)
			require.Regexp(t, tt.problem, problem.Problem)
			require.Equal(t, tt.missing, problem.Field)
		})
	}
}

// FuzzToolText: any text cut anywhere is the same text, is read without a panic, and what comes of it is bounded by it: either a call with
// names and arguments that are JSON, or an error that says something.
func FuzzToolText(f *testing.F) {
	for _, s := range []string{
		"", "<tool>" + toolLook + "</tool>", "<thinking>a</thinking><tool><tool_name>a</tool_name><arguments><a>&#x41;</a></arguments></tool>",
		"a<too", "<tool>{</tool>", "<tool><![CDATA[x]]></tool>", "<tool><a b='", "<tool><!--", "ä<thinking>\x80",
	} {
		f.Add(s, 3, 9)
	}
	f.Fuzz(func(t *testing.T, text string, a, b int) {
		n := len(text) + 1
		requireSameStream(t, text, []int{((a % n) + n) % n, ((b % n) + n) % n})
		whole := ReadToolText(text)
		require.LessOrEqual(t, len(whole.Text)+len(whole.Body), len(text))
		if !whole.Called {
			return
		}
		c, err := whole.Call(agent.MissingServerLocal)
		var problem *TextCallError
		if err != nil {
			require.True(t, errors.As(err, &problem))
			require.NotEmpty(t, problem.Problem)
			return
		}
		require.NotEmpty(t, c.Tool)
		require.True(t, json.Valid(c.Arguments), "%s", c.Arguments)
	})
}

// toolName is an original name: words with dots between them.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// FuzzTextOfCall: a call as text is read back as the call that it is.
func FuzzTextOfCall(f *testing.F) {
	f.Add("look", "2E2222")
	f.Add("local.read", `{"text":"</tool>"}`)
	f.Add("look", `{"a":["<tool>","<\/tool>","</thinking>"]}`)
	f.Fuzz(func(t *testing.T, name, arguments string) {
		input, err := jsonx.CompactJSON([]byte(arguments), jsonx.JSONLimits{})
		if err != nil || !toolName.MatchString(name) {
			return
		}
		for _, kind := range []agent.ToolKind{agent.KindInternal, agent.KindMCP} {
			d := agent.Definition{Tools: []agent.ToolSpec{{Name: name, Kind: kind}}}
			got := ReadToolText("So.\n" + textOfCall(d.Tools[0], input))
			require.Equal(t, "So.", got.Text)
			c, err := got.Call(agent.MissingServerError)
			require.NoError(t, err)
			call := Call(&d, c)
			require.Equal(t, agent.ModelName(name), call.Name)
			if string(input) == "null" {
				input = json.RawMessage(`{}`)
			}
			require.Equal(t, jsonx.CanonicalText(input), jsonx.CanonicalText(call.Input))
		}
	})
}
