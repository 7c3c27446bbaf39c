package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// harness is a folder with an agent, a store, and people who type commands, possibly at the same time.
type harness struct {
	t        *testing.T
	dir      string
	registry *registry.Registry
	grace    time.Duration // of every command; 0 = the default
	bounds   timeouts
	entered  chan string   // the run of every call of hold
	release  chan struct{} // lets one call of hold go on
	env      map[string]string
}

// holdingAgent calls a tool that waits to be released.
const holdingAgent = `name: holder
system: You hold.
model: {provider: script, file: model.jsonl}
tools:
  - name: hold
`

// renamingAgent makes two moves at once. The first name contains a bidirectional control character.
const renamingAgent = `name: tidy
system: You tidy.
model: {provider: script, file: model.jsonl}
tools:
  - {name: move_file, root: .}
`

// holdingModel calls hold once.
const holdingModel = `{"calls": [{"id": "h1", "name": "hold"}]}
{"text": "Held."}`

const renamingModel = `{"text": "I rename \u202eit.", "calls": [
	{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "\u202eb.txt"}},
	{"id": "m2", "name": "move_file", "input": {"source": "d.txt", "destination": "e.txt"}}]}
{"text": "Done."}`

func newHarness(t *testing.T, agentYAML, model string) *harness {
	t.Helper()
	d := &harness{t: t, dir: t.TempDir(), entered: make(chan string, 10), release: make(chan struct{}, 10)}
	hold := tool.Must(tool.New("hold", "Waits.", run.EffectRead, func(ctx context.Context, c tool.Call, _ nothing) (agent.ToolResultData, error) {
		d.entered <- c.Run
		select {
		case <-d.release:
			return tool.Text("released"), nil
		case <-ctx.Done():
			return agent.ToolResultData{}, ctx.Err()
		}
	}, nil))
	d.registry = testRegistry(hold)
	for name, text := range map[string]string{
		"agent.yaml": agentYAML, "model.jsonl": strings.ReplaceAll(model, "\n\t", " "), "a.txt": "a", "d.txt": "d",
	} {
		d.write(name, text)
	}
	return d
}

// write writes a file below the harness's folder.
func (d *harness) write(name, text string) {
	d.t.Helper()
	file := filepath.Join(d.dir, name)
	require.NoError(d.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(d.t, os.WriteFile(file, []byte(text), 0o600))
}

func (d *harness) home() string { return filepath.Join(d.dir, "home") }

func (d *harness) getenv(name string) string {
	if name == "COUNTERSIGN_HOME" {
		return d.home()
	}
	return d.env[name]
}

// commandResult is the exit code and output of a command.
type commandResult struct {
	code           int
	stdout, stderr standins.Log
}

// run runs a command line. typed is the input at the terminal; "" = no terminal.
func (d *harness) run(ctx context.Context, typed string, args ...string) *commandResult {
	p, who := d.newProgram(typed)
	who.code = p.run(ctx, args)
	return who
}

// exits runs a command line without a terminal, which has to end with that exit code.
func (d *harness) exits(code int, args ...string) *commandResult {
	d.t.Helper()
	return d.typed("", code, args...)
}

// typed is exits at a terminal.
func (d *harness) typed(typed string, code int, args ...string) *commandResult {
	d.t.Helper()
	who := d.run(d.t.Context(), typed, args...)
	require.Equal(d.t, code, who.code, "%s\n%s", who.stdout.String(), who.stderr.String())
	return who
}

// newProgram returns the program of a command line.
func (d *harness) newProgram(typed string) (*program, *commandResult) {
	who := &commandResult{}
	return &program{
		registry: d.registry, clock: clock.System(), stdin: strings.NewReader(typed), stdout: &who.stdout, stderr: &who.stderr,
		getenv:   d.getenv,
		terminal: typed != "", storeTimeout: 10 * time.Second, grace: cmp.Or(d.grace, defaultGrace),
	}, who
}

// start runs a command line concurrently.
func (d *harness) start(ctx context.Context, args ...string) <-chan *commandResult {
	done := make(chan *commandResult, 1)
	go func() { done <- d.run(ctx, "", args...) }()
	return done
}

func TestApprovalsAreAskedAtTheTerminal(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	typed := strings.Join([]string{"what", "", "one", "what", "", "e", `{"source": `, "e", `{"source": "a.txt"}`, "e", `{"source": "a.txt", "destination": "c.txt"}`, "d", "not this one"}, "\n")
	who := d.typed(typed, 0, "run", d.dir, "--message", "tidy")
	require.Equal(t, "Done.\n", who.stdout.String())
	shown := who.stderr.String()
	for _, want := range []string{
		`  move_file(source: "a.txt", destination: "\u{202E}b.txt")` + "\n  high risk: ", "    tool       move_file\n", "    approvers  group:operators\n", "    expires    ",
		"    if denied  the call is not carried out", `    source: "a.txt"` + "\n" + `    destination: "\u{202E}b.txt"` + "\n",
		`  The model says (its own words, not checked)` + "\n" + `    "I rename \u{202E}it."`, "that is not taken: json at offset", "edited arguments refused",
	} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "\u202e")
	require.Less(t, strings.Index(shown, "Arguments, complete\n"), strings.Index(shown, "The model says"), "arguments first")
	require.FileExists(t, filepath.Join(d.dir, "c.txt"))
	require.FileExists(t, filepath.Join(d.dir, "d.txt"))
}

// A batch is listed whole and approved at once. What has changed since it was listed is asked about again.
func TestABatchIsApprovedAtOnce(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	who := d.typed("a\nall\n", 0, "run", d.dir, "--message", "tidy")
	shown, _, asked := strings.Cut(who.stderr.String(), "approve all 2 of these, decide one by one, or later? [all/one/l] ")
	require.True(t, asked)
	require.Equal(t, 2, strings.Count(shown, "Arguments, complete\n"), "each is listed before")
	require.NotContains(t, who.stderr.String(), "approve, deny, edit")
	require.Regexp(t, `total    2 turns, [0-9]+ tokens in, [0-9]+ out, [0-9]+m?s\n`, who.stderr.String())
	require.FileExists(t, filepath.Join(d.dir, "e.txt"))
}

// An editor gets the arguments as they are. What it saves is the edit; where it saves nothing there is none.
func TestAnEditorEditsArguments(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	d.env = map[string]string{"EDITOR": "cp \"$1\" " + filepath.Join(d.dir, "seen") + "; sed -i s/b.txt/c.txt/", "VISUAL": ""}
	d.typed("e\n", 0, "run", d.dir, "--message", "tidy")
	require.FileExists(t, filepath.Join(d.dir, "c.txt"))
	seen, err := os.ReadFile(filepath.Join(d.dir, "seen"))
	require.NoError(t, err)
	require.Equal(t, "{\n  \"source\": \"a.txt\",\n  \"destination\": \"b.txt\"\n}\n", string(seen))

	for editor, says := range map[string]string{"true": "", "false": "that is not taken: false: exit status 1"} {
		d := newHarness(t, renamingAgent, movingModel)
		d.env = map[string]string{"VISUAL": editor, "EDITOR": "none"}
		who := d.typed("e\nl\n", 3, "run", d.dir, "--message", "tidy")
		require.Contains(t, who.stderr.String(), says)
	}
}

// Colours are for a terminal that shows them, and are the words alone: what people decide on is not painted.
func TestColoursOfALineOfProgress(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	p, who := d.newProgram("a\n")
	p.colour = true
	require.Equal(t, 0, p.run(t.Context(), []string{"run", d.dir, "--message", "tidy"}))
	require.Contains(t, who.stderr.String(), "\x1b[32mdone    \x1b[0m natural_end\n")
	require.NotContains(t, d.run(t.Context(), "a\n", "run", d.dir, "--message", "tidy").stderr.String(), "\x1b")
}

// A person at a terminal is shown the times of their own zone; what is piped on has UTC.
func TestTimesAreLocalAtATerminal(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	p, who := d.newProgram("l\n")
	p.zone = time.FixedZone("NPT", 5*60*60+45*60)
	require.Equal(t, 3, p.run(t.Context(), []string{"run", d.dir, "--message", "tidy"}))
	require.Regexp(t, `    expires    [-0-9]+ [:0-9]+ NPT, then it is refused\n`, who.stderr.String())
	require.Regexp(t, ` until [-0-9]+ [:0-9]+ NPT:\n`, who.stdout.String())
	require.NotContains(t, who.stderr.String()+who.stdout.String(), "UTC")
	require.Regexp(t, `    expires    [-0-9]+ [:0-9]+ UTC, then it is refused\n`, d.run(t.Context(), "", "approvals").stdout.String())
}

// At a terminal that is no channel of the rule, people are told which are, and may deny.
func TestATerminalThatIsNoChannelOffersNoApproval(t *testing.T) {
	d := newHarness(t, renamingAgent+"permission: {rules: [{tool: move_file, verdict: ask, via: [page, slack]}]}\n", renamingModel)
	who := d.typed("a\nd\nno\nd\nno\n", 0, "run", d.dir, "--message", "tidy")
	require.Contains(t, who.stderr.String(), "the policy lets people approve this by page, Slack; here it can be denied\ndeny, ask or later? [d/ask/l] ")
	require.NotContains(t, who.stderr.String(), "approve, deny")
	require.FileExists(t, filepath.Join(d.dir, "a.txt"))
}

// An approval of arguments that somebody has edited takes the digest of what was shown, and only the printed command says
// which that is. Of several tools the command is about one that is not decided yet.
func TestTheCommandsThatAnswer(t *testing.T) {
	p, _ := newHarness(t, renamingAgent, renamingModel).newProgram("")
	a := approval.Approval{ID: "a1", Digest: "d2", Decisions: []approval.Decision{{Action: approval.Approve}}}
	require.Contains(t, p.answerCommands(a)[0], " approve a1")
	require.NotContains(t, p.answerCommands(a)[0], "--digest")
	a.Decisions = append(a.Decisions, approval.Decision{Action: approval.Edit})
	require.Contains(t, p.answerCommands(a)[0], " approve a1 --digest d2")
	a = approval.Approval{ID: "a1", Permissions: []approval.Permission{{Tool: "x"}, {Tool: "y"}}}
	require.Contains(t, p.answerCommands(a)[2], " approve a1 --tool x ")
	a.Permissions[0].Verdict = run.ToolGranted
	require.Contains(t, p.answerCommands(a)[2], " approve a1 --tool y ")
}

func TestEmptyListsOfApprovalsAreNamed(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	require.Equal(t, 3, d.run(t.Context(), "l\nl\n", "run", d.dir, "--message", "tidy").code)
	require.Equal(t, "no approval is denied\n", d.run(t.Context(), "", "approvals", "--status", "denied").stdout.String())
}

// Events of these forms have ids of messages, or none, which are not their place in the run.
func TestEventsWithoutAPlace(t *testing.T) {
	d := newHarness(t, renamingAgent, `{"text": "Done."}`)
	require.Equal(t, 0, d.run(t.Context(), "", "run", d.dir, "--message", "tidy", "--json").code)
	var page web.Page[web.RunHead]
	require.NoError(t, json.Unmarshal([]byte(d.run(t.Context(), "", "runs", "--json").stdout.String()), &page))
	for _, format := range []string{"agui", "aisdk"} {
		who := d.run(t.Context(), "", "events", page.Items[0].ID, "--format", format)
		require.Regexp(t, `^(-        \{.*\n)+$`, who.stdout.String(), format)
	}
}

func TestLaterLeavesARunWaiting(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	for name, typed := range map[string]string{"later": "one\nl\nl\n", "all of them later": "later\n", "end of input": "one\ne\n", "end of input at a note": "one\nd\n"} {
		who := d.typed(typed, 3, "run", d.dir, "--message", "tidy", "--key", name)
		require.Equal(t, 2, strings.Count(who.stdout.String(), "countersign approve a"), name)
	}
}

// TestA15AskedAtTheTerminal: a question is kept with the request, which waits on for somebody to decide.
func TestA15AskedAtTheTerminal(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	who := d.typed(strings.Join([]string{"one", "ask", "Which \u202Efile?", "ask", "", "l"}, "\n")+"\n", 3, "run", d.dir, "--message", "tidy")
	require.Contains(t, who.stderr.String(), "it waits until somebody decides")
	shown := d.run(t.Context(), "", "approvals").stdout.String()
	require.Equal(t, 1, strings.Count(shown, "UTC: user:local said: "), shown)
	require.Contains(t, shown, `said: "Which \u{202E}file?"`)
	require.Equal(t, 2, strings.Count(shown, "(pending)"))
}

var approvalID = regexp.MustCompile(`countersign approve (a[a-z2-7]{25})`)

// A second process finds the store taken and does the same through the socket.
func TestSecondProcessUsesTheSocket(t *testing.T) {
	d := newHarness(t, holdingAgent, holdingModel)
	first := d.start(t.Context(), "run", d.dir, "--message", "hold", "--json")
	run := <-d.entered
	info, err := os.Stat(filepath.Join(d.home(), "engine.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.Contains(t, d.run(t.Context(), "", "runs").stdout.String(), run)
	require.Contains(t, d.run(t.Context(), "", "show", run).stdout.String(), "h1 hold")
	require.Contains(t, d.run(t.Context(), "", "replay", run).stdout.String(), "no difference")
	served := d.exits(1, "dev", "--addr", "127.0.0.1:0")
	require.Contains(t, served.stderr.String(), fmt.Sprintf("the store %s is served already, by process %d, countersign run\n",
		d.home(), os.Getpid()))
	second := d.start(t.Context(), "run", d.dir, "--message", "hold", "--key", "second")
	other := <-d.entered
	require.NotEqual(t, run, other)
	require.Equal(t, 0, d.run(t.Context(), "", "cancel", other).code)
	require.Equal(t, 1, (<-second).code, "its run was cancelled by somebody else")

	d.release <- struct{}{}
	who := <-first
	require.Equal(t, 0, who.code, who.stderr.String())
	var r web.Run
	require.NoError(t, json.Unmarshal([]byte(who.stdout.String()), &r))
	require.JSONEq(t, `"Held."`, string(r.Output))
}

// Ctrl-C leaves the run as it is, and resume carries it on.
func TestInterruptAndResume(t *testing.T) {
	d := newHarness(t, holdingAgent, holdingModel)
	d.grace = time.Millisecond // its call does not end by itself
	ctx, interrupt := context.WithCancel(t.Context())
	first := d.start(ctx, "run", d.dir, "--message", "hold")
	run := <-d.entered
	interrupt()
	who := <-first
	require.Equal(t, 130, who.code)
	require.Contains(t, who.stderr.String(), "run "+run+" is left as it is; countersign resume carries it on")

	require.Contains(t, d.run(t.Context(), "", "runs").stdout.String(), "running", "looking carries nothing on")
	require.Empty(t, d.entered)

	ctx, interrupt = context.WithCancel(t.Context())
	again := d.start(ctx, "run", d.dir, "--message", "hold", "--key", "again", "--json")
	other := <-d.entered
	require.NotEqual(t, run, other, "a command carries on what it is about")
	interrupt()
	who = <-again
	require.Equal(t, 130, who.code)
	var left web.Run
	require.NoError(t, json.Unmarshal([]byte(who.stdout.String()), &left))
	require.Equal(t, other, left.ID)

	d.release <- struct{}{}
	d.release <- struct{}{}
	who = d.exits(0, "resume")
	require.Contains(t, who.stdout.String(), "Held.")
	require.Equal(t, "nothing is open\n", d.run(t.Context(), "", "resume").stdout.String())
}

// A run whose model is busy says so and goes on waiting; Ctrl-C leaves it, and resume carries it on.
func TestABusyModelIsWaitedFor(t *testing.T) {
	d := newHarness(t, `{name: helper, system: You help., model: {provider: script, file: model.jsonl, retry: {attempts: 1}}}`, `{"error": "throttled"}`)
	ctx, interrupt := context.WithCancel(t.Context())
	p, who := d.newProgram("")
	done := make(chan int, 1)
	go func() { done <- p.run(ctx, []string{"run", d.dir, "--message", "Hello."}) }()
	waits := regexp.MustCompile(`busy     run (\w+) waits: model script: throttled: .*; asks again in \d+s`)
	require.Eventually(t, func() bool { return waits.MatchString(who.stderr.String()) }, 2*time.Minute, time.Millisecond)
	interrupt()
	require.Equal(t, 130, <-done)
	run := waits.FindStringSubmatch(who.stderr.String())[1]
	require.Contains(t, who.stderr.String(), "run "+run+" is left as it is; countersign resume carries it on")
	require.Contains(t, d.run(t.Context(), "", "runs").stdout.String(), "running")

	d.write("model.jsonl", `{"text": "Hello yourself."}`)
	again := d.exits(0, "resume")
	require.Contains(t, again.stdout.String(), "Hello yourself.")
}

// Whoever follows a run through the socket takes the store over when the other process ends.
func TestFollowerTakesTheStoreOver(t *testing.T) {
	d := newHarness(t, holdingAgent, holdingModel)
	d.grace = time.Millisecond // its call does not end by itself
	ctx, interrupt := context.WithCancel(t.Context())
	first := d.start(ctx, "run", d.dir, "--message", "hold", "--key", "first")
	<-d.entered
	second := d.start(t.Context(), "run", d.dir, "--message", "hold", "--key", "second")
	b := <-d.entered
	interrupt()
	require.Equal(t, 130, (<-first).code)
	require.Equal(t, b, <-d.entered, "its own run goes on in the other process")
	d.release <- struct{}{}
	who := <-second
	require.Equal(t, 0, who.code, who.stderr.String())
	require.Equal(t, "Held.\n", who.stdout.String())
}

func TestApproveThroughTheSocketCarriesOnThere(t *testing.T) {
	d := newHarness(t, holdingAgent+"  - {name: move_file, root: .}\n",
		`{"calls": [{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "b.txt"}}]}
{"calls": [{"id": "h1", "name": "hold"}]}
{"text": "Held."}`)
	parked := d.exits(3, "run", d.dir, "--message", "x", "--key", "first")
	id := approvalID.FindStringSubmatch(parked.stdout.String())[1]
	follow := d.start(t.Context(), "approve", id)
	run := <-d.entered
	again := d.exits(1, "deny", id)
	require.Contains(t, again.stderr.String(), "is approved: approve by user:local")
	test := d.exits(1, "export", run, "--test")
	require.Contains(t, test.stderr.String(), "is going on: export it when it waits or has ended", "the process with the store says it")
	watch := d.start(t.Context(), "events", run, "--follow")
	d.release <- struct{}{}
	require.Equal(t, 0, (<-follow).code)
	seen := <-watch
	require.Equal(t, 0, seen.code, seen.stderr.String())
	require.Contains(t, seen.stdout.String(), "finished")
}

// What keeps a run from going on is told, and the command ends instead of waiting for ever.
func TestRunThatStandsStill(t *testing.T) {
	d := newHarness(t, renamingAgent, renamingModel)
	parked := d.exits(3, "run", d.dir, "--message", "tidy")
	require.NoError(t, os.RemoveAll(filepath.Join(d.home(), "blobs")))
	id := approvalID.FindStringSubmatch(parked.stdout.String())[1]
	who := d.exits(1, "approve", id)
	require.Contains(t, who.stderr.String(), "trouble  step failed: ")
	require.Contains(t, who.stderr.String(), "stands still: its execution has given up")
}

func TestStoreOfAProcessThatDoesNotAnswer(t *testing.T) {
	d := newHarness(t, holdingAgent, `{"text": "Held."}`)
	mute, err := local.Open(d.home(), d.registry, nil, local.Config{Clock: clock.System()})
	require.NoError(t, err)
	p, who := d.newProgram("")
	p.storeTimeout = time.Millisecond
	require.Equal(t, 1, p.run(t.Context(), []string{"runs"}))
	require.Contains(t, who.stderr.String(), "is in use by another process, which does not answer on "+local.SocketPath(d.home()))

	waiting := d.start(t.Context(), "run", d.dir, "--message", "x")
	require.NoError(t, mute.Close())
	require.Equal(t, 0, (<-waiting).code, "one that is just ending is waited for")
}

func TestSocketsThatAreLeft(t *testing.T) {
	d := newHarness(t, holdingAgent, `{"text": "Held."}`)
	require.NoError(t, os.MkdirAll(d.home(), 0o700))
	socket := local.SocketPath(d.home())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	who := d.exits(0, "run", d.dir, "--message", "x")
	require.NotContains(t, who.stderr.String(), "cannot reach")

	require.NoError(t, os.WriteFile(socket, []byte("mine"), 0o600))
	who = d.run(t.Context(), "", "run", d.dir, "--message", "x")
	require.Equal(t, 0, who.code, "it works without the socket")
	require.Contains(t, who.stderr.String(), "other commands cannot reach this one: listen on "+socket+": there is something else")

	who = d.exits(0, "run", d.dir, "--message", "x", "--home", filepath.Join(d.dir, strings.Repeat("far/", 40)))
	require.Contains(t, who.stderr.String(), "the path is too long for a socket; want a shorter --home")
}

// The key of the API is in no output, whatever goes wrong.
func TestKeyIsNotEchoed(t *testing.T) {
	d := newHarness(t, strings.Replace(holdingAgent, "provider: script, file: model.jsonl", "provider: openai, id: m, baseURL: \"http://127.0.0.1:1/v1\", retry: {attempts: 1}, busy: fail", 1), "")
	d.env = map[string]string{"OPENAI_API_KEY": "sk-very-secret"}
	who := d.exits(1, "run", d.dir, "--message", "x", "--json")
	require.Contains(t, who.stderr.String(), "ended in error: model_failed")
	require.NotContains(t, who.stdout.String()+who.stderr.String(), "sk-very-secret")
}

// Who follows a run reads which tools it has not got of its servers, and that an attempt which came to nothing is no answer of anybody's.
func TestProgressTellsWhatIsMissing(t *testing.T) {
	servers := []run.ServerState{
		{Name: "files", Tools: []string{"list"}, Disabled: []run.DisabledTool{{Tool: "wipe", Why: run.DisabledNew}}},
		{Name: "good", Tools: []string{"a"}}, {Name: "web", Problem: "connection\nrefused"},
	}
	for want, fact := range map[string]run.Event{
		"disabled wipe of files: it is not in mcp.lock (run: countersign mcp lock)\n" +
			"server   web could not be listed: connection\\nrefused\n": run.ToolsListed{Servers: servers},
		"disabled read of files: its server has changed it since mcp.lock was written (run: countersign mcp lock)\n": run.ToolsDisabled{
			Server: "files", Tool: "read", Why: run.DisabledChanged,
		},
		"again    files.read (c1): nothing came of an attempt\n": run.Answered{Call: "c1", Rerun: true, NotRun: true, By: "reconcile"},
		"answered files.read (c1) by user:ana\n":                 run.Answered{Call: "c1", By: "user:ana"},
	} {
		data, err := json.Marshal(fact)
		require.NoError(t, err)
		var said bytes.Buffer
		w := (&session{p: &program{stderr: &said}}).newFollower(web.Run{Calls: []web.Call{{ID: "c1", Tool: "files.read"}}})
		w.printEvent(web.Event{Type: run.EventType(fact), Data: data})
		require.Equal(t, want, said.String())
	}
}

// What a model has written of a conversation is masked as the conversation is.
func TestB4ASummaryIsMasked(t *testing.T) {
	var out bytes.Buffer
	(&program{stdout: &out}).printRun(t.Context(), nil, web.Run{Summary: "Its key is AKIAIOSFODNN7EXAMPLE."})
	require.Contains(t, out.String(), `Its key is \{masked, 20 characters}.`)
}
