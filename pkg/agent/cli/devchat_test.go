package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// startHarness starts dev over the agents of a harness, until the test ends.
func startHarness(t *testing.T, d *harness, args ...string) *devServer {
	t.Helper()
	t.Chdir(d.dir)
	s, stop := d.startDev(args...)
	t.Cleanup(func() { stop() })
	return s
}

// An agent that is saved is the one that the next run starts with; a run keeps the definition that it was started with.
// What is wrong with a file is on the agent's page, with its line, and no run starts until it is mended.
func TestDevReloadsSavedAgents(t *testing.T) {
	d := newHarness(t, renamingAgent+"version: \"1\"\n", movingModel+"\n"+movingModel)
	s := startHarness(t, d)
	first := s.startRun("tidy")
	s.waitForEvent(first, "parked")
	save := func(text string) { d.write("agent.yaml", text) }

	save(renamingAgent + "version: \"2\"\n")
	second := s.startRun("tidy")
	require.Equal(t, "2", s.loadRun(second).Version)
	v := s.newVisitor()
	require.Contains(t, v.send("GET", "/agents/tidy", nil).body, "<h1>tidy 2</h1>")

	save(renamingAgent + "version: \"3\"\npermission: {default: \"may\\u202ebe\"}\n")
	for _, at := range []string{"/agents/tidy", "/start", "/chat"} { // before anything is sent
		page := v.send("GET", at, nil)
		require.Equal(t, http.StatusOK, page.StatusCode)
		for _, want := range []string{"agent.yaml, line 7", "permission.default", "want", `<pre class="plain" tabindex="0">permission:`, "starts no run"} {
			require.Contains(t, page.body, want, at)
		}
	}
	require.Contains(t, v.send("GET", "/agents", nil).body, "cannot be loaded")
	status, body := s.do("POST", "/v1/runs", `{"agent": "tidy", "message": "go"}`)
	require.Equal(t, http.StatusBadRequest, status, body)
	require.Contains(t, body, "agent.yaml:7: permission.default")
	request := "/approvals/" + s.loadRun(first).Waiting[0].Approval
	require.Equal(t, http.StatusSeeOther, v.send("POST", request, v.fillForm(request, "approve", "key", v.key)).StatusCode)
	s.waitForEvent(first, "finished")
	require.Equal(t, "1", s.loadRun(first).Version, "what was started goes on as it was")
	require.Contains(t, v.send("GET", "/runs/"+first, nil).body, "starts no run", "nor one that continues it")

	d.write("agents/near/agent.yaml", strings.NewReplacer("tidy", "near", "model.jsonl", "../../model.jsonl").Replace(renamingAgent))
	save(renamingAgent + "version: \"4\"\n")
	require.Contains(t, v.send("GET", "/agents/tidy", nil).body, "<h1>tidy 4</h1>")
	require.NotContains(t, v.send("GET", "/agents", nil).body, "cannot be loaded")
	require.Contains(t, v.send("GET", "/agents/near", nil).body, "<h1>near</h1>")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "agent.yaml")))
	require.Equal(t, http.StatusNotFound, v.send("GET", "/agents/tidy", nil).StatusCode)
}

// The page of an agent follows its file while somebody looks at it.
func TestConsoleShowsBrokenAgents(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, renamingAgent, movingModel)
	s := startHarness(t, d)
	p := s.visit(b, "agent", "/agents/tidy")
	bad := strings.Replace(renamingAgent, "root: .}", "root: ., efect: read}", 1)
	d.write("agent.yaml", bad)
	waitForScript(t, p, `document.getElementById("broken").innerText.includes("agent.yaml, line 5")`)
	p.RequireAccessible("console-broken")
	d.write("agent.yaml", renamingAgent)
	waitForScript(t, p, `!document.getElementById("broken").innerText && document.getElementById("about").innerText.includes("move_file")`)
}

// streamedModel is a server of chat completions that streams the pieces of each reply as they are let through.
func streamedModel(t *testing.T, replies ...[]string) (base string, next chan struct{}) {
	t.Helper()
	next = make(chan struct{}, 100)
	ended := make(chan struct{})
	asked := make(chan []string, len(replies))
	for _, r := range replies {
		asked <- r
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range <-asked {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			case <-ended:
				return
			}
			fmt.Fprintf(w, "data: {\"choices\": [%s]}\n\n", piece)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(func() {
		close(ended)
		server.Close()
	})
	return server.URL + "/v1", next
}

// A chat shows reasoning, text and calls while the model writes them, asks for approval in its midst, and goes on with
// what is said next. The page of the run shows the same. All of it is text, whatever the model writes.
func TestConsoleChat(t *testing.T) {
	b := standins.StartBrowser(t)
	call := func(args string) string {
		raw, err := json.Marshal(args)
		require.NoError(t, err)
		return `{"delta": {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "move_file", "arguments": ` + string(raw) + `}}]}`
	}
	base, next := streamedModel(t,
		[]string{`{"delta": {"reasoning_content": "They greet\u202e <i>me</i>."}}`, `{"delta": {"content": "Hel\u202e"}}`,
			`{"delta": {"content": "lo, <b>you</b>."}, "finish_reason": "stop"}`},
		[]string{call(`{"source": "a.txt",`) + `}`, call(` "destination": "b.txt"}`) + `, "finish_reason": "tool_calls"}`},
		[]string{`{"delta": {"content": "Moved."}, "finish_reason": "stop"}`})
	d := newHarness(t, `{name: helper, system: You help., tools: [{name: move_file, root: .}], model: {provider: openai, id: m, baseURL: "`+base+`"}}`, "")
	s := startHarness(t, d)
	p := b.Open("chat", standins.PageOptions{Width: 390, Height: 844})
	p.Goto(s.Open)
	p.Goto(s.URL + "/chat?agent=helper")
	p.RequireAccessible("console-chat-begins")
	p.Fill("#message", "Hi")
	p.Key("Shift+Enter")
	p.Type("there")
	p.Key("Enter")
	waitForScript(t, p, `location.pathname.startsWith("/chat/r") && document.getElementById("talk")?.innerText.includes("Hi\nthere")`)
	at := func() string { return strings.TrimPrefix(p.Where(), s.URL+"/chat/") }
	q := s.visit(b, "late", "/") // who begins to watch
	late := func(name, shown string) {
		t.Helper()
		for _, path := range []string{"/chat/", "/runs/"} {
			q.Goto(s.URL + path + at())
			waitForScript(t, q, shown)
		}
		q.Eval(`document.getElementById("live-reasoning").open = true`, nil)
		q.RequireAccessible("console-" + name)
	}
	next <- struct{}{}
	waitForScript(t, p, `document.getElementById("live")?.hidden === false && !document.getElementById("live-reasoning").hidden &&
		document.querySelector("#live-reasoning .words").textContent === "They greet\u00b7 <i>me</i>."`)
	waitForScript(t, p, `!document.getElementById("live-reasoning").open && document.getElementById("live-text").textContent === ""`)
	next <- struct{}{}
	hello := `document.getElementById("live-text").textContent === "Hel\u00b7" && !document.querySelector("#live i")`
	waitForScript(t, p, hello)
	late("writes", hello)
	next <- struct{}{}
	waitForScript(t, p, `document.getElementById("live")?.hidden && document.getElementById("talk")?.innerText.includes("lo, <b>you</b>.")`)
	waitForScript(t, p, `document.querySelector("#act form")?.action.endsWith("/continue")`)

	p.Fill("#message", "Move it")
	p.Key("Enter")
	waitForScript(t, p, `document.getElementById("talk")?.innerText.includes("Move it")`)
	next <- struct{}{}
	calls := `!document.getElementById("live").hidden && document.getElementById("live-reasoning").hidden && !document.getElementById("live-text").textContent &&
		document.querySelector("#live-calls strong")?.textContent === "move_file" && document.querySelector("#live-calls .size").textContent === "19"`
	waitForScript(t, p, calls)
	late("calls", calls)
	next <- struct{}{}
	waitForScript(t, p, `!!document.querySelector("#talk .request-card button[value=approve]") && document.getElementById("live").hidden`)
	chat := p.Where()
	q.Goto(chat)
	q.RequireAccessible("console-chat-asks")
	p.Click("#talk .request-card button[value=approve]")
	next <- struct{}{}
	waitForScript(t, p, `document.getElementById("talk")?.innerText.includes("Moved.")`)
	require.Equal(t, chat, p.Where(), "a decision leads back to the chat")
	waitForScript(t, p, `window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80`)
	require.Empty(t, p.Log().Console)
}

// The AI SDK's own client, of two versions, drives a run: it shows text while the model writes it, and approves and
// denies on the call itself.
func TestStockChat(t *testing.T) {
	for _, version := range []string{"ai", "ai6"} {
		t.Run(version, func(t *testing.T) {
			program, script := standins.StockChat(t, version)
			text := "I move it" + strings.Repeat(", slowly", 100) + "." // in many pieces, as a fast reply may come in one read
			chunks, err := json.Marshal(strings.SplitAfter(text, ","))
			require.NoError(t, err)
			call := strings.Replace(movingModel, `{"calls"`, `{"text": "`+text+`", "chunks": `+string(chunks)+`, "calls"`, 1)
			d := newHarness(t, renamingAgent, call)
			d.write("a.txt", "a")
			s := startHarness(t, d)
			type shown struct{ Errors, Shown, Live []string }
			chat := func(does ...string) (got shown) {
				args := append([]string{script, version, s.URL + "/v1/chat/tidy", s.token}, does...)
				out, err := exec.CommandContext(t.Context(), program, args...).Output()
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(out, &got))
				require.Empty(t, got.Errors)
				return got
			}
			got := chat("say:Tidy up", "approve:fine", "say:Once more", "say:Well?", "deny:not that")
			require.Equal(t, []string{
				"user: Tidy up", "assistant: step-start, " + text + ", move_file output-available, step-start, Done.",
				"user: Once more", "assistant: step-start, " + text + ", move_file approval-requested",
				"user: Well?", "assistant: move_file output-denied, step-start, Done.",
			}, got.Shown)
			isLive := func(live string) bool { return live != "" && live != text && strings.HasPrefix(text, live) }
			for range 9 { // a busy machine may have all of a reply before the client asks for it
				if !slices.ContainsFunc(got.Live, isLive) {
					got = chat("say:Again")
				}
			}
			require.True(t, slices.ContainsFunc(got.Live, isLive), "before the reply was there")
			require.FileExists(t, filepath.Join(d.dir, "b.txt"))
		})
	}
}

// A chat has the run page's form to cancel while its run is not done. It leads back to the chat, which goes on from
// there.
func TestConsoleCancelsInAChat(t *testing.T) {
	_, s, run := startParkedRun(t)
	v := s.newVisitor()
	chat, cancel := "/chat/"+run, `action="/runs/`+run+`/cancel"`
	_, form, found := strings.Cut(v.send("GET", chat, nil).body, cancel)
	require.True(t, found)
	form, _, _ = strings.Cut(form, "</form>")
	require.Contains(t, form, `name="chat" value="1"`)
	require.Equal(t, http.StatusForbidden, v.send("POST", "/runs/"+run+"/cancel", url.Values{"chat": {"1"}}).StatusCode)
	done := v.post("/runs/"+run+"/cancel", "chat", "1", "note", "Not today.")
	require.Equal(t, http.StatusSeeOther, done.StatusCode, done.body)
	require.Equal(t, chat, done.Header.Get("Location"))
	s.waitForEvent(run, "finished")
	require.Equal(t, "cancelled", string(s.loadRun(run).Reason))
	page := v.send("GET", chat, nil).body
	require.NotContains(t, page, cancel)
	require.Contains(t, page, `action="/runs/`+run+`/continue"`)
	page = v.send("GET", "/runs/"+run, nil).body
	require.Contains(t, page, `class="bar-wait"`)
	require.NotContains(t, page, `class="bar-tool"`, "a call that never ran has no time in which it did")
}

// startingAgent takes input of a form.
const startingAgent = `name: refunder
system: You refund.
model: {provider: script, file: model.jsonl}
input:
  schema:
    type: object
    required: [order, kind]
    properties:
      order: {type: integer, description: The number of the order}
      kind: {type: string, enum: [full, part]}
      why: {type: string}
      gift: {type: boolean}
      lines: {type: array, items: {type: string}}
      until: {anyOf: [{$ref: "#/$defs/day"}, {type: "null"}]}
      by: {oneOf: [{type: string}, {type: integer}]}
    $defs: {day: {type: string, title: The last day}}
tools:
  - {name: move_file, root: .}
`

// A run starts with an input that is typed field by field, with another model, and with files; once, and with the message
// that was typed before its agent was chosen.
func TestConsoleStarts(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, startingAgent, `{"text": "Own."}`)
	d.write("agents/tidy/agent.yaml", renamingAgent)
	d.write("agents/tidy/model.jsonl", `{"text": "Own."}`)
	d.write("agents/near/agent.yaml", strings.NewReplacer("tidy", "near", "model.jsonl", "../tidy/model.jsonl").Replace(renamingAgent))
	d.write("other.jsonl", `{"text": "Other."}`)
	s := startHarness(t, d)
	v := s.newVisitor()
	started := func(got pageResponse) web.Run {
		t.Helper()
		require.Equal(t, http.StatusSeeOther, got.StatusCode, got.body)
		id, _, _ := strings.Cut(strings.TrimPrefix(got.Header.Get("Location"), "/runs/"), "?")
		s.waitForEvent(id, "finished")
		return s.loadRun(id)
	}
	page := v.send("GET", "/start?agent=refunder", nil).body
	for _, want := range []string{`name="arg.order"`, `<select name="arg.kind">`, `name="arg.lines"`, "The number of the order", `name="model"`} {
		require.Contains(t, page, want)
	}
	p := s.visit(b, "start", "/start?agent=refunder")
	p.RequireAccessible("console-start-form")
	for _, at := range []string{"/start", "/chat"} {
		q := s.visit(b, at, at+"?agent=near")
		q.Fill("#message", "Look at these.")
		q.Eval(`document.querySelector("[name=agent]").value = "tidy", document.querySelector("[name=agent]").dispatchEvent(new Event("change"))`, nil)
		waitForScript(t, q, `location.search.includes("tidy") && document.querySelector("#message").value === "Look at these."`)
		var pressed []bool // true = it is sent
		const press = `[1, 2].map(() => document.querySelector("#message").form.dispatchEvent(new SubmitEvent("submit", {bubbles: true, cancelable: true})))`
		q.Eval(press, &pressed)
		require.Equal(t, []bool{true, false}, pressed, "twice is once")
		q.Eval(`dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true})), `+press, &pressed)
		require.Equal(t, []bool{true, false}, pressed, "a page that is shown again sends again")
	}
	bad := v.post("/start", "agent", "refunder", "arg.order", "many", "arg.kind", `"full"`, "arg.why", "kept as typed")
	require.Equal(t, http.StatusBadRequest, bad.StatusCode)
	require.Contains(t, bad.body, "order: want a number")
	require.Contains(t, bad.body, "kept as typed")
	require.Equal(t, http.StatusBadRequest, v.post("/start", "agent", "refunder", "arg.order", "1", "arg.kind", `"none"`).StatusCode)
	refused := v.post("/start", "agent", "refunder", "arg.order", "1.5", "arg.kind", `"full"`)
	require.Equal(t, http.StatusBadRequest, refused.StatusCode, "the schema itself decides")

	run := started(v.post("/start", "agent", "refunder", "arg.order", "12", "arg.kind", `"part"`, "arg.why", "", "arg.gift", "true", "arg.lines", `["a"]`,
		"model", "script:"+filepath.Join(d.dir, "other.jsonl")))
	var said []string
	for _, m := range run.Messages {
		raw, err := json.Marshal(m)
		require.NoError(t, err)
		said = append(said, string(raw))
	}
	require.Contains(t, strings.Join(said, "\n"), "Other.")
	for _, want := range []string{`\"order\":12`, `\"kind\":\"part\"`, `\"gift\":true`, `\"lines\":[\"a\"]`} {
		require.Contains(t, strings.Join(said, "\n"), want)
	}
	require.NotContains(t, strings.Join(said, "\n"), `why`)
	require.Equal(t, http.StatusBadRequest, v.post("/start", "agent", "refunder", "input", `{"order": 1, "kind": "full"}`, "model", "nothing:x").StatusCode)

	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	large := strings.Repeat("large ", web.MaxInline/6+1)
	for name, text := range map[string]string{"key": v.key, "agent": "tidy", "message": "Look at these."} {
		require.NoError(t, w.WriteField(name, text))
	}
	_, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename=""`}}) // a field left empty
	require.NoError(t, err)
	for _, text := range []string{"small", large} {
		part, err := w.CreateFormFile("file", fmt.Sprintf("notes%d.txt", len(text)))
		require.NoError(t, err)
		_, err = io.WriteString(part, text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	run = started(v.sendBody("POST", "/start", &body, "Content-Type", w.FormDataContentType()))
	shown := v.send("GET", "/runs/"+run.ID, nil).body
	for _, want := range []string{"notes5.txt text/plain", fmt.Sprintf("notes%d.txt text/plain", len(large)), "Look at these."} {
		require.Contains(t, shown, want)
	}
	require.Contains(t, v.send("GET", "/runs/"+run.ID+"/json", nil).body, `"notes5.txt"`)
}

// By keys alone: from request to request, to the buttons, to the arguments and to a question. Arguments are edited in a
// form of the tool's schema, and nothing is sent before its difference is shown.
func TestConsoleKeysAndEdit(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, renamingAgent, movingModel+"\n"+movingModel)
	s := startHarness(t, d)
	for range 2 {
		s.waitForEvent(s.startRun("tidy"), "parked")
	}
	p := s.visit(b, "keys", "/")
	at := func(what string) {
		t.Helper()
		waitForScript(t, p, `(() => { const cards = [...document.querySelectorAll(".request-card")], on = document.activeElement; return `+what+` })()`)
	}
	at(`cards.length === 2`)
	for _, step := range [][2]string{
		{"j", `on === cards[0]`}, {"j", `on === cards[1]`}, {"j", `on === cards[1]`}, {"a", `on.value === "approve" && cards[1].contains(on)`},
		{"d", `on.value === "deny" && cards[1].contains(on)`}, {"k", `on === cards[0]`}, {"?", `on.name === "text" && cards[0].contains(on)`},
	} {
		p.Key(step[0])
		at(step[1])
	}
	p.Type("jk?ade")
	at(`on.value === "jk?ade"`)
	p.Eval(`document.activeElement.value = ""; document.activeElement.blur()`, nil)
	p.Key("j")
	p.Key("e")
	at(`on.name === "arg.source" && on.closest("details.edit").open && cards[0].contains(on)`)
	var request string
	p.Eval(`document.activeElement.closest(".request-card").id`, &request)
	before := s.loadApproval(request)
	q := s.visit(b, "edit", "/approvals/"+request)
	q.Click("details.edit > summary")
	q.RequireAccessible("console-edit")
	q.Fill("[name='arg.destination']", "c.txt\u202e")
	q.Click(".fields button[value=review]")
	q.Settle()
	var changes string
	q.Eval(`document.querySelector(".changes dl").innerText`, &changes)
	require.Equal(t, []string{"destination", `"b.txt"`, `"c.txt\u{202E}"`}, strings.Fields(changes), "what changes alone, and what is odd in it")
	q.RequireAccessible("console-review")
	require.Equal(t, before, s.loadApproval(request), "to look decides nothing")
	p.Fill("#"+request+" [name='arg.destination']", "c.txt")
	p.Click("#" + request + " .fields button[value=review]")
	p.Settle()
	p.Fill(".changes [name=note]", "elsewhere")
	p.Click(".changes button[value=edit]")
	waitForScript(t, p, `location.pathname === "/"`)
	decided := s.loadApproval(request)
	require.JSONEq(t, `{"source": "a.txt", "destination": "c.txt"}`, string(decided.Args))
	require.Equal(t, "elsewhere", decided.Decisions[0].Note)
	v := s.newVisitor()
	other := s.pendingApproval()
	same := v.send("POST", "/approvals/"+other, v.fillForm("/approvals/"+other, "review", "key", v.key))
	require.Equal(t, http.StatusBadRequest, same.StatusCode)
	require.Contains(t, same.body, "nothing is different")
}

// A standing grant is seen on the page of its agent, and revoked there; its tool asks from then on.
func TestConsoleRevokesAGrant(t *testing.T) {
	b := standins.StartBrowser(t)
	d := newHarness(t, renamingAgent+"permission: {scope: tool, grants: standing}\n", movingModel+"\n"+movingModel)
	s := startHarness(t, d)
	run := s.startRun("tidy")
	s.waitForEvent(run, "parked")
	request := s.pendingApproval()
	v := s.newVisitor()
	require.Equal(t, http.StatusSeeOther, v.send("POST", "/approvals/"+request, v.fillForm("/approvals/"+request, "approve", "key", v.key)).StatusCode)
	s.waitForEvent(run, "finished")
	p := s.visit(b, "grants", "/agents/tidy")
	waitForScript(t, p, `document.querySelector(".grants")?.innerText.includes("move_file")`)
	p.RequireAccessible("console-grants")
	p.Click(".grants .buttons button")
	waitForScript(t, p, `!document.querySelector(".grants")`)
	require.Equal(t, s.URL+"/agents/tidy", p.Where())
	s.waitForEvent(s.startRun("tidy"), "parked")
}
