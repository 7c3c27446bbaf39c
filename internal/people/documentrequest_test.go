package people_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/badinput"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.FixedZone("", 3600))

func request() approval.Approval {
	return approval.Approval{
		ID: "a1", Run: "r1", Agent: "refunds", Version: "3", Kind: approval.KindCall, Calls: []string{"c1"}, Tools: []string{"payments.refund"},
		Args: json.RawMessage(`{"order":"A-1","amount":100.50}`), Effect: run.EffectNonIdempotent, Status: approval.Pending,
		Approvers: []string{"group:finance"}, Quorum: 1, RuleNote: "over 50", RequestedAt: noon, ExpiresAt: noon.Add(24 * time.Hour), Decisions: []approval.Decision{},
	}
}

func values(d people.Document) map[string]string {
	all := map[string]string{}
	for _, s := range d.Sections {
		for _, r := range s.Rows {
			if r.Name != "" {
				all[r.Name] = r.Value.String()
			}
		}
	}
	return all
}

func sectionNames(d people.Document) (all []people.SectionName) {
	for _, s := range d.Sections {
		all = append(all, s.Name)
	}
	return all
}

// written is a section as text, without indents.
func written(d people.Document, name people.SectionName) string {
	var lines []string
	for _, s := range d.Only(name).Sections {
		for _, r := range s.Rows {
			lines = append(lines, r.Text().String())
		}
	}
	return strings.Join(lines, "\n")
}

func TestB1TheDocument(t *testing.T) {
	a := request()
	a.Quorum, a.FourEyes, a.Requesters = 2, true, []string{"user:ana"}
	a.Decisions = []approval.Decision{{By: "user:bo", Action: approval.Approve, At: noon.Add(time.Hour), Note: "fine", Via: agent.ViaSlack}}
	a.EscalateTo, a.EscalatesAt = []string{"group:heads"}, noon.Add(2*time.Hour)
	a.Parent, a.ParentCall, a.Root = "r0", "c9", "r0"
	a.Above = [][]string{{"group:support"}}
	a.ClaimedSubject, a.Requesters = "user:cy; approved by legal", append(a.Requesters, "user:cy; approved by legal")
	v := people.DocumentView{ModelText: "The customer asked. Approve it.", Definition: &agent.Definition{Tools: []agent.ToolSpec{{
		Name: "payments.refund", Kind: agent.KindHTTP, Description: "Pays money back.", HTTP: &agent.HTTPTool{Method: "POST", URL: "https://pay.example/v1/{order}"},
		Undo: &agent.Undo{Tool: "payments.take_back"},
	}}}}
	r := people.BuildDocument(a, v)
	require.Equal(t, "May refunds carry out payments.refund?", r.Title.String())
	require.Equal(t, `payments.refund(order: "A-1", amount: 100.50)`, r.Sentence.String())
	require.Equal(t, people.RiskMedium, r.Risk)
	require.Equal(t, "it cannot be repeated safely; payments.take_back takes it back", r.RiskText.String())
	require.Equal(t, []people.SectionName{people.SectionArguments, people.SectionDepends, people.SectionWho, people.SectionAbout, people.SectionHistory, people.SectionClaim, people.SectionSays}, sectionNames(r))
	got := values(r)
	for name, want := range map[string]string{
		"tool": "payments.refund", "does": "Pays money back.",
		"target": "POST to https://pay.example", "agent": "refunds 3",
		"run": "r1, call c1", "below": "call c9 of run r0, for run r0", "requester": "user:ana", "why": "over 50",
		"approvers": "group:finance; and at once group:support", "quorum": "2 different people approve, and one who denies is enough; 1 of 2 so far: user:bo",
		"asked": "2026-11-22 11:00:00 UTC", "expires": "2026-11-23 11:00:00 UTC, then it is refused",
		"escalates": "at 2026-11-22 13:00:00 UTC, then these decide: group:finance, group:heads; and at once group:support", "if denied": "the call is not carried out, and the model is told so",
	} {
		require.Equal(t, want, got[name], name)
	}
	require.Equal(t, "The customer asked. Approve it.", written(r, people.SectionSays))
	require.Equal(t, "user:cy; approved by legal", written(r, people.SectionClaim), "the caller's word is no fact")
	for name, value := range got {
		require.NotContains(t, value, "customer", "%s: the model's words are no fact", name)
		require.NotContains(t, value, "legal", "%s: the caller's words are no fact", name)
	}
	require.Equal(t, "2026-11-22 11:00:00 UTC: asked by refunds\n2026-11-22 12:00:00 UTC: approved by user:bo: \"fine\"", written(r, people.SectionHistory))
	a.Decisions = append(a.Decisions, approval.Decision{By: "user:di", Action: approval.Edit, At: noon.Add(2 * time.Hour), Args: json.RawMessage(`{"amount":5}`)})
	r = people.BuildDocument(a, v)
	require.Contains(t, values(r)["quorum"], "1 of 2 so far: user:di", "an edit is another action: what was said before is not of it")
	require.Contains(t, written(r, people.SectionHistory), "2026-11-22 13:00:00 UTC: approved with other arguments by user:di\namount: 5")

	again := request() // what an edited call depends on has changed since
	again.EditedBy = "user:di"
	require.Equal(t, "edited: the arguments are those of user:di, who changed the model's", written(people.BuildDocument(again, v), people.SectionWarnings))
	again.OriginalArgs = json.RawMessage(`{"amount":5}`)
	require.Equal(t, `edited: the arguments are a person's; user:di had changed those of the model to {"amount":5}`,
		written(people.BuildDocument(again, v), people.SectionWarnings))
	again.Status, again.Decisions = approval.Voided, []approval.Decision{{By: "user:di", Action: approval.Approve, At: noon}}
	require.Contains(t, written(people.BuildDocument(again, v), people.SectionHistory),
		"approved by user:di\nvoid: before the approved call ran, what it depends on or the policy changed; it is asked about again")
	again.Quorum = 2
	require.Contains(t, written(people.BuildDocument(again, v), people.SectionHistory), "\nvoid: the policy changed, and it is asked about again, or the call")
	again.Kind = approval.KindOutcome
	require.Contains(t, written(people.BuildDocument(again, v), people.SectionHistory), "\nvoid: what became of the call is known without an answer")
	require.Contains(t, values(people.BuildDocument(again, v))["expires"], "UTC, then the model is told that nobody knows")
	again.Decisions = []approval.Decision{{By: "user:di", Action: approval.ReportError, At: noon.Add(time.Hour), Args: json.RawMessage(`"no funds"`)}}
	require.Contains(t, written(people.BuildDocument(again, v), people.SectionHistory), "found to have failed by user:di\n\"no funds\"")
}

// A policy that was tightened, or an edit under four eyes, may leave fewer people than a request takes.
func TestB1TooFewCanApprove(t *testing.T) {
	two := []string{"user:ana", "user:bo"}
	for want, a := range map[string]approval.Approval{
		"":                        {Approvers: two, Quorum: 2},
		"takes 3 .*at most 2 can": {Approvers: two, Quorum: 3},
		"takes 2 .*at most 1 can": {Approvers: two, Quorum: 2, FourEyes: true, Requesters: two[:1]},
		"takes 1 .*at most 0 can": {Approvers: two, Quorum: 1, Above: [][]string{{"group:finance"}, {"user:cy"}}},
		"takes 2 .*at most 0 can": {Quorum: 2},
	} {
		a.Kind, a.Status = approval.KindCall, approval.Pending
		require.Regexp(t, want+"|^$", written(people.BuildDocument(a, people.DocumentView{}), people.SectionWarnings))
		require.Equal(t, want == "", written(people.BuildDocument(a, people.DocumentView{}), people.SectionWarnings) == "", want)
		a.Approvers = []string{"group:finance"}
		a.Above = nil
		require.Empty(t, written(people.BuildDocument(a, people.DocumentView{}), people.SectionWarnings), "nobody knows how many a group has")
	}
	later := approval.Approval{Kind: approval.KindCall, Status: approval.Pending, Approvers: two[:1], Quorum: 2, EscalatesAt: noon, EscalateTo: two, ExpiresAt: noon.Add(1)}
	require.Empty(t, written(people.BuildDocument(later, people.DocumentView{}), people.SectionWarnings))
}

func TestB1NothingIsNeededBesideTheRequest(t *testing.T) {
	require.NotPanics(t, func() { people.BuildDocument(approval.Approval{}, people.DocumentView{}) })
	got := values(people.BuildDocument(request(), people.DocumentView{}))
	require.NotContains(t, got, "target")
	require.NotContains(t, got, "requester")
	a := request()
	a.Approvers = nil
	require.Equal(t, "nobody", values(people.BuildDocument(a, people.DocumentView{}))["approvers"])
}

func TestB1WhereCallsGo(t *testing.T) {
	for want, spec := range map[string]agent.ToolSpec{
		"MCP server files, its tool move_file": {Kind: agent.KindMCP, MCP: &agent.MCPTool{Server: "files", Tool: "move_file"}, Description: "Trust me."},
		"function arn:aws:lambda:x":            {Kind: agent.KindLambda, Lambda: &agent.LambdaTool{Function: "arn:aws:lambda:x"}},
		"agent tidy, in a run of its own":      {Kind: agent.KindAgent, Agent: &agent.Delegate{Agent: "tidy"}},
		"a service, by event payments.refund":  {Kind: agent.KindService},
		"this program":                         {Kind: agent.KindInternal},
		"GET to http://10.0.0.1:8080":          {Kind: agent.KindHTTP, HTTP: &agent.HTTPTool{Method: "GET", URL: "http://user:hunter2@10.0.0.1:8080/{order}"}},
	} {
		spec.Name = "payments.refund"
		r := people.BuildDocument(request(), people.DocumentView{Definition: &agent.Definition{Tools: []agent.ToolSpec{spec}}})
		require.Equal(t, want, values(r)["target"])
		require.NotContains(t, fmt.Sprint(r), "hunter2")
		require.NotContains(t, fmt.Sprint(r), "Trust me", "a server's word of itself is no fact")
	}
}

func TestB1Risk(t *testing.T) {
	for _, c := range []struct {
		effect run.Effect
		undo   bool
		want   people.Risk
	}{
		{run.EffectRead, false, people.RiskNone}, {run.EffectIdempotent, false, people.RiskLow}, {run.EffectNonIdempotent, true, people.RiskMedium},
		{run.EffectNonIdempotent, false, people.RiskHigh}, {"", false, people.RiskHigh}, {"new", true, people.RiskHigh},
	} {
		require.Equal(t, c.want, people.RiskOf(c.effect, c.undo), c)
	}
}

func TestB1WhatADecisionDoes(t *testing.T) {
	const (
		told     = "the call is not carried out, and the model is told so"
		toolGone = "the tool is not called any more in this run, and the model is told so"
		always   = "the rest of the run, and in every run of refunds for "
		standing = always + "30 days or until it is revoked"
		very     = "the tool may be called with these very arguments for "
	)
	type of = approval.Approval
	hours := []approval.Permission{{Bounds: &agent.GrantBounds{Seconds: 36 * 60 * 60}}}
	for _, c := range []struct {
		change                 func(*of)
		granted, denied, asked string
	}{
		{func(*of) {}, "", told, ""},
		{func(a *of) { a.Scope, a.Grants = agent.ScopeTool, agent.GrantsRun },
			"the tool may be called for the rest of the run, whatever it is called with", toolGone, ""},
		{func(a *of) { a.Scope, a.Grants = agent.ScopeTool, agent.GrantsStanding },
			"the tool may be called for " + standing + ", whatever it is called with", toolGone, ""},
		{func(a *of) { a.Grants = agent.GrantsStanding }, very + standing, told, ""},
		{func(a *of) { a.Grants, a.Permissions = agent.GrantsStanding, hours },
			very + always + "36 hours or until it is revoked", told, ""},
		{func(a *of) { a.Kind, a.Grants = approval.KindTools, agent.GrantsOnce },
			"the tool may be called once, whatever it is called with", "the model is told so; its next call asks again",
			"whether these tools may be called; their calls were blocked and are not carried out"},
		{func(a *of) { a.Kind = approval.KindOutcome }, "", "nothing: say what became of it",
			"what became of this call: it was interrupted, and nobody knows whether it took effect"},
		{func(a *of) { a.Kind, a.Ticket = approval.KindInput, &run.Ticket{Mode: run.TicketResult} }, "", told,
			"for input: its tool has done nothing yet, and does not run again: the answer is its result"},
		{func(a *of) { a.Undoes = &approval.UndoneCall{Run: "r0", Call: "c0"} }, "", "nothing is taken back", ""},
		{func(a *of) { a.Tools = []string{run.ToolBudget} }, "", "the run gets no more, and ends", ""},
	} {
		a := request()
		c.change(&a)
		got := values(people.BuildDocument(a, people.DocumentView{}))
		require.Equal(t, []string{c.granted, c.denied, c.asked}, []string{got["if granted"], got["if denied"], got["asks"]})
		require.Equal(t, a.Undoes != nil, got["undoes"] == "call c0 of run r0")
	}
}

func TestB2ArgumentsAreCompleteAndInOrder(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:  "(none)\n",
		`"x"`: "\"x\"\n",
		`[]`:  "[]\n",
		`{"a":10000000000000000001,"b":1.50,"c":true,"d":null,"e":"","f":1E400}`: "a: 10000000000000000001\nb: 1.50\nc: true\nd: null\ne: \"\"\nf: 1E400\n",
		`{"to":{"name":"Ana","tags":["x",["y"],{}]},"last":[]}`:                  "to:\n  name: \"Ana\"\n  tags:\n    [0]: \"x\"\n    [1]:\n      [0]: \"y\"\n    [2]: {}\nlast: []\n",
		`{"z":1,"a":2,"od\u202ed key":1,"":2,"n":"1","n2":1}`:                    "z: 1\na: 2\n\"od\\u{202E}d key\": 1\n\"\": 2\nn: \"1\"\nn2: 1\n",
		`{"a":1,"a":2}`:  "a: 1\na: 2\n",
		`{"a":"\ud800"}`: "a: \"\\\\ud800\"\n",
		`{"a":`:          "\"{\\\"a\\\":\"\n",
	} {
		a := request()
		a.Args = json.RawMessage(in)
		var b strings.Builder
		require.NoError(t, people.WriteText(&b, people.BuildDocument(a, people.DocumentView{}).Only(people.SectionArguments)))
		_, got, _ := strings.Cut(b.String(), "complete\n")
		require.Equal(t, want, strings.ReplaceAll("\n"+got, "\n    ", "\n")[1:])
	}
	long := strings.Repeat("x", 200_000)
	lines, masked := people.ReadArguments(json.RawMessage(`{"a":"`+long+`"}`), nil)
	require.False(t, masked)
	require.Equal(t, `"`+long+`"`, lines[0].Value.String())
}

// Every string of the corpus, as a value, as a key, as a note and in the model's words, on the plain channel.
func TestB3TheCorpusChangesNothingBesideIt(t *testing.T) {
	for _, c := range badinput.HostileTexts() {
		if !c.IsStorable() {
			continue
		}
		a := request()
		a.Args = c.Args()
		a.RuleNote = c.Text
		a.Decisions = []approval.Decision{{By: "user:bo", Action: approval.Deny, At: noon, Note: c.Text}}
		a.Thread = []approval.Remark{{By: "user:bo", At: noon, Text: c.Text}}
		a.ClaimedSubject = c.Text
		r := people.BuildDocument(a, people.DocumentView{ModelText: c.Text})
		require.Len(t, r.Sections[0].Rows, 1, c.Comment)
		value := r.Sections[0].Rows[0].Value
		shown := value.String()
		escapeInvisible(t, value, c.Comment)
		if !r.Masked {
			got, err := badinput.Unescape(shown[1 : len(shown)-1])
			require.NoError(t, err)
			require.Equal(t, c.Text, got, c.Comment)
		}
		var text strings.Builder
		require.NoError(t, people.WriteText(&text, r))
		require.NoError(t, badinput.CheckHarmless(text.String()), c.Comment)
		a.Args, a.RuleNote, a.Decisions[0].Note, a.Thread[0].Text = json.RawMessage(`{"text":"plain"}`), "plain", "plain", "plain"
		a.ClaimedSubject = "plain"
		var plain strings.Builder
		require.NoError(t, people.WriteText(&plain, people.BuildDocument(a, people.DocumentView{ModelText: "plain"})))
		more := 0
		if c.Text == "" { // the policy's note, and the sections of claim and words, are left out
			more = 6
		}
		require.Equal(t, strings.Count(plain.String(), "\n"), strings.Count(text.String(), "\n")+more, "%s: it makes lines of its own", c.Comment)
	}
}

// No name and no form hides what runs, or who is paid. Channels show what the document has: see their hostile texts.
func TestB4NothingThatRunsIsMasked(t *testing.T) {
	for _, behind := range badinput.UnmaskableTexts() {
		a := request()
		a.Args = badinput.UnmaskableArgs(behind)
		var got strings.Builder
		require.NoError(t, people.WriteText(&got, people.BuildDocument(a, people.DocumentView{})))
		require.GreaterOrEqual(t, strings.Count(got.String(), people.QuotedText(behind).String()), 3, "%q:\n%s", behind, &got)
		require.Contains(t, got.String(), `"mallory"`)
	}
}

func TestMarkTimes(t *testing.T) {
	at := people.FormatTime(noon)
	require.Equal(t, people.Text{{Text: "until "}, {Text: at, Kind: people.SpanTime}, {Text: "."}}, people.MarkTimes("until "+at+"."))
}

// What a request depends on is fields where it is an object, with secrets masked; else one sentence.
func TestB1WhatItDependsOn(t *testing.T) {
	a := request()
	a.Precondition = &run.Checked{Tool: "orders.get", Args: json.RawMessage(`{"order":"A-1"}`), Content: `{"total": 249.00, "customer": {"name": "Ben"}, "apiKey": "hunter2"}`, At: noon}
	require.Equal(t, `depends on: orders.get of {"order":"A-1"}, read at `+people.FormatTime(noon)+`; read again before the call runs
total: 249.00
customer:
name: "Ben"
apiKey: \{masked, 7 characters}
policy: over 50`, written(people.BuildDocument(a, people.DocumentView{}), people.SectionDepends))
	v := people.DocumentView{Definition: &agent.Definition{Tools: []agent.ToolSpec{{Name: "payments.refund", Precondition: &agent.Precondition{Tool: "orders.get", Warn: []run.Condition{
		{Path: "/customer/name", Eq: json.RawMessage(`"Ben"`)}, {Path: "/total", Gt: json.RawMessage("249")}, {Path: "/none", Eq: json.RawMessage("1")}}}}}}}
	marked := func(d people.Document) (labels []string) {
		for _, row := range d.Only(people.SectionDepends).Sections[0].Rows {
			if row.Wrong {
				labels = append(labels, row.Label.String())
			}
		}
		return labels
	}
	require.Equal(t, []string{"name"}, marked(people.BuildDocument(a, v)))
	require.Contains(t, written(people.BuildDocument(a, v), people.SectionWarnings)+"\n", "looks wrong: name is \"Ben\"\n")
	v.Definition.Tools[0].Precondition.Compare = []string{"/customer/name"}
	a.Precondition.Content = `{"/customer/name":"Ben"}`
	require.Equal(t, []string{`"/customer/name"`}, marked(people.BuildDocument(a, v)))
	a.Precondition.Was = &run.Was{Content: `{"total": 1}`}
	require.False(t, people.BuildDocument(a, v).Masked, "white space hides nothing")
	a.Precondition.Was = nil
	a.Precondition.Content = "gone"
	require.Contains(t, written(people.BuildDocument(a, people.DocumentView{}), people.SectionDepends), `orders.get of {"order":"A-1"} says gone, at `+people.FormatTime(noon)+`; read again`)
}

func TestB4SecretsAreMaskedEverywhere(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLE"
	a := request()
	a.Args = json.RawMessage(`{"password":"hunter2","text":"use ` + secret + ` now","pin":1234,"nested":[{"clientSecret":"hunter2"}],"` + secret + `":1,"long":{"token":"` + strings.Repeat("hunter2", 50) + `"}}`)
	a.RuleNote = "note " + secret
	a.Thread = []approval.Remark{{By: "user:x", At: noon, Text: "is " + secret + " right?"}}
	a.Decisions = []approval.Decision{{By: "user:x", Action: approval.Edit, At: noon, Note: secret, Args: json.RawMessage(`{"password":"hunter2"}`)}}
	a.Ticket = &run.Ticket{Action: "tool:x", Message: "is it " + secret + "?", Parameters: json.RawMessage(`{"apiKey":"hunter2","pin":1234}`)}
	v := people.DocumentView{ModelText: "I use " + secret, Definition: &agent.Definition{Tools: []agent.ToolSpec{{Name: "payments.refund", Description: "not " + secret, Schema: json.RawMessage(`{"properties":{"pin":{"writeOnly":true}}}`)}}}}
	a.OriginalArgs = json.RawMessage(`{"pin":1234,"password":"hunter2"}`)
	a.Precondition = &run.Checked{
		Tool: "payments.refund", Args: json.RawMessage(`{"pin":1234}`), Content: "{}", At: noon,
		Was: &run.Was{Args: json.RawMessage(`{"pin":1234}`), Content: "{}", At: noon},
	}
	r := people.BuildDocument(a, v)
	require.True(t, r.Masked)
	all := fmt.Sprintf("%v", r)
	var text strings.Builder
	require.NoError(t, people.WriteText(&text, r))
	for _, shown := range []string{all, text.String()} {
		for _, hidden := range []string{secret, "hunter2", "1234"} {
			require.NotContains(t, shown, hidden)
		}
	}
	a.Kind, a.Ticket.ResponseSchema = approval.KindInput, json.RawMessage(`{"properties":{"code":{"x-secret":true}}}`)
	for mode, answer := range map[run.TicketMode]string{run.TicketResult: `{"code":1234}`, run.TicketPass: `{"pin":1234}`} {
		a.Ticket.Mode, a.Decisions = mode, []approval.Decision{{By: "user:x", Action: approval.Approve, At: noon, Args: json.RawMessage(answer)}}
		require.NotContains(t, fmt.Sprintf("%v", people.BuildDocument(a, v)), "1234", mode)
	}
	require.Contains(t, text.String(), `
    password: \{masked, 7 characters}
    text: "use \{masked, 20 characters} now"
    pin: \{masked, 4 characters}
    nested:
      [0]:
        clientSecret: \{masked, 7 characters}
    "\{masked, 20 characters}": 1
    long:
      token: \{masked, 350 characters}
`)
	require.Contains(t, text.String(), "masked     secrets are masked; the decision is on what is stored, with them")
	lines, masked := people.ReadArguments([]byte(`{"whole":{"user":"ana","list":[1]},"after":1}`), []byte(`{"properties":{"whole":{"writeOnly":true}}}`))
	require.True(t, masked)
	var shown []string
	for _, l := range lines {
		shown = append(shown, l.Label.String()+" "+l.Value.String())
	}
	require.Equal(t, []string{"whole ", `user \{masked, 3 characters}`, "list ", `[0] \{masked, 1 character}`, "after 1"}, shown, "an object is never masked as a whole")
	a.Kind, a.Permissions = approval.KindTools, []approval.Permission{{Tool: "payments.refund", Calls: []approval.BlockedCall{{Call: "c1", Args: a.Args, RuleNote: secret}}}}
	a.Ticket = nil
	r = people.BuildDocument(a, v)
	require.True(t, r.Masked)
	require.NotContains(t, fmt.Sprintf("%v", r), "hunter2")
	require.NotContains(t, fmt.Sprintf("%v", r), secret)
	require.False(t, people.BuildDocument(request(), people.DocumentView{}).Masked)
	require.Equal(t, `{"password":"[masked, 1 character]","a":1}`, people.MaskedJSON([]byte(`{"password":"x","a":1}`)))
	require.Equal(t, "a\n"+`\{masked, 20 characters}\u{202E}`, people.MaskedLines("a\n"+secret+"\u202e"))
}

func TestB4AnEditorKeepsWhatTheyCannotSee(t *testing.T) {
	args := `{"to":"ana","password":"hunter2","tokens":["one","two"],"url":"https://u:hunter2@x.example/","pin":12,"map":{"AKIAIOSFODNN7EXAMPLE":"x"},"n":1.50}`
	schema := json.RawMessage(`{"properties":{"pin":{"writeOnly":true}}}`)
	held := func(n int) string { return fmt.Sprintf("[masked %d: kept as it is]", n) }
	got, err := people.EditableArguments(json.RawMessage(args), schema)
	require.NoError(t, err)
	want := fmt.Sprintf(`{"to":"ana","password":"%s","tokens":["%s","%s"],"url":"%s","pin":"%s","map":"%s","n":1.50}`, held(1), held(2), held(3), held(4), held(5), held(6))
	require.Equal(t, want, string(got))

	back, err := people.RestoreArguments(got, json.RawMessage(args), schema)
	require.NoError(t, err)
	require.Equal(t, args, string(back), "untouched, it is what is stored, byte by byte")
	for edited, want := range map[string]string{
		strings.Replace(want, `"ana"`, `"bo"`, 1):          strings.Replace(args, `"ana"`, `"bo"`, 1),
		strings.Replace(want, `"`+held(1)+`"`, `"new"`, 1): strings.Replace(args, `"hunter2"`, `"new"`, 1),
		fmt.Sprintf(`{"n":2, "password":"%s"}`, held(1)):   `{"n":2,"password":"hunter2"}`,
		fmt.Sprintf(`{"tokens":["%s"]}`, held(2)):          `{"tokens":["one"]}`,
	} {
		back, err := people.RestoreArguments(json.RawMessage(edited), json.RawMessage(args), schema)
		require.NoError(t, err)
		require.Equal(t, want, string(back))
	}
	for _, edited := range []string{
		fmt.Sprintf(`{"to":"%s"}`, held(1)), fmt.Sprintf(`{"password":"%s"}`, held(2)), fmt.Sprintf(`{"tokens":["%s"]}`, held(3)), fmt.Sprintf(`{"tokens":["new","one","%s"]}`, held(3)),
		fmt.Sprintf(`{"password":"x%s"}`, held(1)), fmt.Sprintf(`{"%s":1}`, held(1)), fmt.Sprintf(`{"a":{"password":"%s"}}`, held(1)), fmt.Sprintf(`"%s"`, held(1)),
		fmt.Sprintf(`{"password":["%s"]}`, held(1)), `{"password":"\u005bmasked 2: kept as it is]"}`,
	} {
		_, err := people.RestoreArguments(json.RawMessage(edited), json.RawMessage(args), schema)
		var refused *people.EditError
		require.ErrorAs(t, err, &refused, edited)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err = people.RestoreArguments(json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(args), schema)
	require.Error(t, err, "a key twice")

	literal := `{"to":"[masked 1: kept as it is]","[masked 2":"x","password":"hunter2"}` // stored, and no secret
	got, err = people.EditableArguments(json.RawMessage(literal), nil)
	require.NoError(t, err)
	back, err = people.RestoreArguments(got, json.RawMessage(literal), nil)
	require.NoError(t, err)
	require.Equal(t, literal, string(back))
}

// generated are arguments with secrets in all places.
func generated(t *rapid.T) json.RawMessage {
	key := rapid.SampledFrom([]string{"a", "b", "password", "apiKey", "a/b", "m~n", "", "AKIAIOSFODNN7EXAMPLE"})
	leaf := rapid.SampledFrom([]string{`"x"`, `1.50`, `true`, `null`, `"AKIAIOSFODNN7EXAMPLE"`, `"use ghp_abcdefghijklmnopqrstuvwxyz0123456789"`, `"[masked 1: kept as it is]"`, `{}`, `[]`, `"\u202e"`})
	var value func(depth int) string
	value = func(depth int) string {
		switch n := rapid.IntRange(0, 3).Draw(t, "n"); {
		case depth == 0 || n == 0:
			return leaf.Draw(t, "leaf")
		case n == 1:
			return "[" + value(depth-1) + "," + value(depth-1) + "]"
		default:
			a, b := key.Draw(t, "key"), key.Draw(t, "key")
			if a == b {
				b += "2"
			}
			return fmt.Sprintf(`{"%s":%s,"%s":%s}`, a, value(depth-1), b, value(depth-1))
		}
	}
	return json.RawMessage(value(4))
}

func TestB4WhatIsNotEditedIsRestored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := generated(t)
		restores(t, args, nil)
		shown, err := people.EditableArguments(args, nil)
		require.NoError(t, err)
		require.NotContains(t, string(shown), "AKIA")
		require.NotContains(t, string(shown), "ghp_")
	})
}

func restores(t require.TestingT, args, schema json.RawMessage) {
	shown, err := people.EditableArguments(args, schema)
	require.NoError(t, err)
	back, err := people.RestoreArguments(shown, args, schema)
	require.NoError(t, err)
	require.Equal(t, string(people.EscapeJSON(args)), string(people.EscapeJSON(back)), "the same texts, in either form")
}

func FuzzRestore(f *testing.F) {
	f.Add("{\"a\":[\"[masked 1: kept a\x7f it is]\"]}", `{}`)
	f.Add(`"˄"`, `{}`) // could be taken for ^
	f.Add(`{"password":"x","a":["[masked 1: kept as it is]"]}`, `{"a":["[masked 1: kept as it is]"]}`)
	f.Fuzz(func(t *testing.T, stored, edited string) {
		args, err := jsonx.CompactJSON([]byte(stored), jsonx.JSONLimits{})
		if err != nil {
			return
		}
		restores(t, args, nil)
		back, err := people.RestoreArguments(json.RawMessage(edited), args, nil)
		if err == nil {
			require.True(t, json.Valid(back))
		}
	})
}
