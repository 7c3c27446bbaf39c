package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web"
)

// movingModel is a model that asks for one move.
const movingModel = `{"calls": [{"id": "m1", "name": "move_file", "input": {"source": "a.txt", "destination": "b.txt"}}]}
{"text": "Done."}`

// devServer is a running dev and its token.
type devServer struct {
	t *testing.T
	devResult
	token string
}

// readDevServer reads the document that dev prints at its start.
func readDevServer(t *testing.T, stdout io.Reader) *devServer {
	t.Helper()
	s := &devServer{t: t}
	require.NoError(t, json.NewDecoder(stdout).Decode(&s.devResult))
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // what follows is an error, which nobody should wait for
	var ok bool
	s.token, ok = strings.CutPrefix(s.Open, s.URL+"/?token=")
	require.True(t, ok, s.Open)
	return s
}

// do sends a request with the token.
func (s *devServer) do(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(data)
}

// startRun starts a run.
func (s *devServer) startRun(agent string) (run string) {
	s.t.Helper()
	return s.start(`{"agent": "` + agent + `", "message": "go"}`)
}

// start starts a run with a body of the API.
func (s *devServer) start(request string) (run string) {
	s.t.Helper()
	status, body := s.do("POST", "/v1/runs", request)
	require.Equal(s.t, http.StatusAccepted, status, body)
	var a web.Accepted
	require.NoError(s.t, json.Unmarshal([]byte(body), &a))
	return a.ID
}

// token is sent with every request of a client.
type token string

func (k token) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func (s *devServer) client() *web.Client {
	return web.NewURLClient(s.URL, &http.Client{Transport: token(s.token)})
}

// waitForEvent follows a run's stream, reconnecting, until an event of that type.
func (s *devServer) waitForEvent(run, event string) {
	s.t.Helper()
	last, is := "", errors.New("the event is there")
	for err := error(nil); !errors.Is(err, is); {
		require.NoError(s.t, err)
		err = s.client().Follow(s.t.Context(), run, last, func(e web.Event) error {
			if last = e.ID; e.Type == event {
				return is
			}
			require.NotEqual(s.t, "finished", e.Type, "waiting for %s", event)
			return nil
		})
	}
}

// pendingApproval returns the pending request.
func (s *devServer) pendingApproval() string {
	s.t.Helper()
	p, err := s.client().FindApprovals(s.t.Context(), approval.Query{})
	require.NoError(s.t, err)
	require.Len(s.t, p.Items, 1)
	return p.Items[0].ID
}

// loadApproval returns a request of the API.
func (s *devServer) loadApproval(id string) approval.Approval {
	s.t.Helper()
	a, err := s.client().Approval(s.t.Context(), id)
	require.NoError(s.t, err)
	return a
}

// loadRun returns a run of the API.
func (s *devServer) loadRun(id string) web.Run {
	s.t.Helper()
	r, err := s.client().Run(s.t.Context(), id)
	require.NoError(s.t, err)
	return r
}

// startDev starts dev in this process. stop is its Ctrl-C, by which it ends well.
func (d *harness) startDev(args ...string) (s *devServer, stop func() *commandResult) {
	d.t.Helper()
	ctx, interrupt := context.WithCancel(d.t.Context())
	d.t.Cleanup(interrupt)
	out, in := io.Pipe()
	done := make(chan *commandResult, 1)
	p, who := d.newProgram("")
	p.stdout, p.timeouts = io.MultiWriter(&who.stdout, in), d.bounds
	go func() {
		who.code = p.run(ctx, append([]string{"dev", "--addr", "127.0.0.1:0", "--json"}, args...))
		_ = in.CloseWithError(fmt.Errorf("dev ended: %s", who.stderr.String()))
		done <- who
	}()
	return readDevServer(d.t, out), func() *commandResult {
		interrupt()
		who := <-done
		require.Equal(d.t, 0, who.code, who.stderr.String())
		return who
	}
}

// A run is started over HTTP, waits, is approved from another terminal, and ends; every other command finds the engine
// as ever.
func TestDevServesTheAPI(t *testing.T) {
	d := newHarness(t, strings.Replace(renamingAgent, "root: .", "root: "+t.TempDir(), 1), movingModel)
	require.NoError(t, os.WriteFile(filepath.Join(d.agentRoot(), "a.txt"), []byte("a"), 0o600))
	t.Chdir(d.dir)
	s, stop := d.startDev()
	require.Equal(t, []string{"tidy"}, s.Agents)
	require.Equal(t, "user:local", s.As)
	info, err := os.Stat(filepath.Join(d.home(), "token"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	run := s.startRun("tidy")
	s.waitForEvent(run, "parked")
	listed := d.run(t.Context(), "", "runs")
	require.Contains(t, listed.stdout.String(), run)
	asked := d.run(t.Context(), "", "approvals")
	require.Contains(t, asked.stdout.String(), "  runs in    this program\n", "another process reads the definition, and says what of arguments is a secret")
	d.exits(0, "approve", s.pendingApproval(), "--as", "user:ana,group:operators")
	require.FileExists(t, filepath.Join(d.agentRoot(), "b.txt"))
	s.waitForEvent(run, "finished")
	_, body := s.do("GET", "/v1/approvals?status=approved", "")
	require.Contains(t, body, `"by":"user:ana"`, "the socket takes who acts from the command")

	d.exits(0, "run", d.dir, "--message", "x", "--no")

	stop()
	require.NoFileExists(t, filepath.Join(d.home(), "engine.sock"))
}

// agentRoot returns the folder of the agent's tools.
func (d *harness) agentRoot() string {
	d.t.Helper()
	data, err := os.ReadFile(filepath.Join(d.dir, "agent.yaml"))
	require.NoError(d.t, err)
	_, rest, _ := strings.Cut(string(data), "root: ")
	root, _, _ := strings.Cut(rest, "}")
	return root
}

// Over TCP it is the token that says who acts, and nothing else.
func TestDevActsAsOnePrincipal(t *testing.T) {
	for _, c := range []struct {
		as   []string
		want string
		code int
	}{
		{nil, "user:local", http.StatusOK},
		{[]string{"--as", "user:ben,group:operators"}, "user:ben", http.StatusOK},
		{[]string{"--as", "user:eve,group:sales"}, "user:eve", http.StatusForbidden},
	} {
		t.Run(c.want, func(t *testing.T) {
			d := newHarness(t, renamingAgent, movingModel)
			s := startHarness(t, d, c.as...)
			require.Equal(t, c.want, s.As)
			run := s.startRun("tidy")
			s.waitForEvent(run, "parked")
			status, body := s.do("POST", "/v1/approvals/"+s.pendingApproval()+"/decision", `{"action": "deny"}`, web.AsHeader, "user:mallory,group:operators")
			require.Equal(t, c.code, status, body)
			require.Contains(t, body, c.want)
			require.NotContains(t, body, "mallory")
		})
	}
}

// The port is the guarded one: what Guard promises holds for page and API.
func TestDevIsGuarded(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	s := startHarness(t, d)
	for _, path := range []string{"/", "/v1/runs", "/engine", "/v1/nothing"} {
		status, body := s.do("GET", path, "", "Authorization", "Bearer "+strings.Repeat("a", 52))
		require.Equal(t, http.StatusUnauthorized, status, body)
	}
	status, _ := s.do("GET", "/engine", "")
	require.Equal(t, http.StatusNotFound, status, "who serves is for the socket")
	status, body := s.do("POST", "/v1/runs", `{"agent": "tidy", "message": "x"}`, "Origin", "http://evil.example")
	require.Equal(t, http.StatusForbidden, status, body)
	_, body = s.do("GET", "/v1/runs", "")
	require.JSONEq(t, `{"items": []}`, body)
}

func TestDevRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, taken.Close()) })
	withToken := func(data string, mode os.FileMode) func(*harness) {
		return func(d *harness) {
			d.write("home/token", data)
			require.NoError(t, os.Chmod(filepath.Join(d.home(), "token"), mode))
		}
	}
	good := strings.Repeat("a", 52)
	for name, c := range map[string]struct {
		address string
		given   func(*harness)
		code    int
		want    string
	}{
		"a taken port":       {taken.Addr().String(), nil, 1, "listen on " + taken.Addr().String() + ": another process has the port"},
		"a token for others": {"127.0.0.1:0", withToken(good, 0o644), 2, "home/token: others can read it (mode 0644, want 0600)"},
		"half a token":       {"127.0.0.1:0", withToken("abc", 0o600), 2, "home/token: want 52 characters"},
		"a folder as token": {"127.0.0.1:0", func(d *harness) {
			require.NoError(t, os.MkdirAll(filepath.Join(d.home(), "token"), 0o700))
		}, 2, "want a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newHarness(t, renamingAgent, movingModel)
			t.Chdir(d.dir)
			if c.given != nil {
				c.given(d)
			}
			who := d.exits(c.code, "dev", "--addr", c.address)
			require.Contains(t, who.stderr.String(), c.want)
			require.NotContains(t, who.stdout.String()+who.stderr.String(), good)
			d.exits(0, "runs") // nothing is left open
		})
	}
}

// A registered agent does not stand in for one whose file cannot be loaded. The others can be started.
func TestABrokenFileIsNotReplacedByTheRegisteredAgent(t *testing.T) {
	d := newHarness(t, strings.Replace(renamingAgent, "tidy", "near", 1), `{"text": "Done."}`)
	def, err := (&program{registry: d.registry}).loadAgent(d.dir, agentOverrides{})
	require.NoError(t, err)
	def.Name = "tidy"
	require.NoError(t, d.registry.Add(*def))
	t.Chdir(d.dir)
	for text, want := range map[string]string{
		"name: tidy\ncolour: red\n":                       "agents/odd/agent.yaml:2: colour: got an unknown key",
		strings.Replace(renamingAgent, "tidy", "near", 1): "agents/odd/agent.yaml: name: got near, which is that of agent.yaml",
	} {
		d.write("agents/odd/agent.yaml", text)
		d.write("agents/odd/model.jsonl", movingModel)
		name := agentNameOf("agents/odd/agent.yaml")
		for _, args := range [][]string{{"run", name, "--message", "x"}, {"validate", name}} {
			who := d.run(t.Context(), "", args...)
			require.Equal(t, 2, who.code, args)
			require.Contains(t, who.stdout.String()+who.stderr.String(), want)
		}
		require.Equal(t, 0, d.run(t.Context(), "", "run", map[string]string{"tidy": "near", "near": "tidy"}[name], "--message", "x").code)
	}
}

// The agents of the current directory come before registered ones of the same name; the others stay. One that cannot be
// loaded is named, and does not keep the others from being served.
func TestDevAgents(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	for _, name := range []string{"tidy", "clerk"} {
		def, err := (&program{registry: d.registry}).loadAgent(d.dir, agentOverrides{})
		require.NoError(t, err)
		def.Name, def.Version = name, "registered"
		require.NoError(t, d.registry.Add(*def))
	}
	d.write("agents/near/agent.yaml", strings.Replace(renamingAgent, "tidy", "near", 1))
	d.write("agents/near/model.jsonl", movingModel)
	d.write("agents/odd/agent.yaml", "name: odd\ncolour: red\n")
	d.write("agents/asks/agent.yaml", "name: asks\nsystem: You ask.\nmodel: {provider: demo}\n"+
		"tools: [{kind: agent, name: odd.ask, description: Asks., agent: odd}]\n")
	t.Chdir(d.dir)
	s, stop := d.startDev()
	require.Equal(t, []string{"asks", "clerk", "near", "tidy"}, s.Agents)
	const problem = "agents/odd/agent.yaml:2: colour: got an unknown key"
	for agent, by := range map[string]string{"odd": "", "asks": "tool odd.ask of agent asks: "} {
		_, refused := s.do("POST", "/v1/runs", `{"agent": "`+agent+`", "message": "go"}`)
		require.Contains(t, refused, "start run: "+by+"agent odd cannot be loaded: agents/odd/agent.yaml:1: system")
	}
	require.Contains(t, s.newVisitor().send("GET", "/agents/odd", nil).body, "agents/odd/agent.yaml, line 2")
	for agent, version := range map[string]string{"clerk": "registered", "near": "", "tidy": ""} {
		require.Equal(t, version, s.loadRun(s.startRun(agent)).Version)
	}
	require.Contains(t, stop().stderr.String(), problem)
}

// On an address that others can reach, they come by that address; a name that is not the port's is refused even then.
func TestDevForOthers(t *testing.T) {
	host, _, err := (&devCommand{Addr: "dev.example:8420", InsecureListen: true}).parseAddr()
	require.NoError(t, err)
	d := newHarness(t, renamingAgent, movingModel)
	p, who := d.newProgram("")
	p.home = d.home()
	e, err := p.openEngine(principals{})
	require.NoError(t, err)
	w, err := newWebServer(e, host, &net.TCPAddr{IP: net.IPv4zero, Port: 8420}, "t", policy.Principal{ID: "user:local"})
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8420", w.url, "a person here can open it")
	for host, want := range map[string]int{"192.0.2.7:8420": 200, "localhost:8420": 200, "dev.example:8420": 200, "evil.example:8420": 403, "192.0.2.7": 403} {
		r := httptest.NewRequest(http.MethodGet, "/v1/runs", nil)
		r.Host = host
		r.Header.Set("Authorization", "Bearer t")
		out := httptest.NewRecorder()
		w.server.Handler.ServeHTTP(out, r)
		require.Equal(t, want, out.Code, host)
	}
	require.NoError(t, w.printAddress())
	require.Contains(t, who.stderr.String(), "others can reach this port")
	require.NoError(t, e.Close())
}

// commandProcess is dev in a process of its own.
type commandProcess struct {
	*devServer
	cmd    *exec.Cmd
	stderr *bufio.Reader
}

// newCommandProcess runs this test binary as the command countersign.
func newCommandProcess(t *testing.T, d *harness, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Args, cmd.Dir = append([]string{"countersign"}, args...), d.dir
	cmd.Env = append(os.Environ(), "COUNTERSIGN_HOME="+d.home(), "GORACE=atexit_sleep_ms=0")
	return cmd
}

func startDevProcess(t *testing.T, d *harness) *commandProcess {
	t.Helper()
	p := &commandProcess{cmd: newCommandProcess(t, d, "dev", "--addr", "127.0.0.1:0", "--json")}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	p.stderr = bufio.NewReader(stderr)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	p.devServer = readDevServer(t, stdout)
	return p
}

func (p *commandProcess) interrupt() { require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt)) }

// waitForEndNote waits until the process logs that it ends.
func (p *commandProcess) waitForEndNote() {
	p.t.Helper()
	line, err := p.stderr.ReadString('\n')
	require.NoError(p.t, err)
	require.Contains(p.t, line, "ending")
}

// sendPartialStart sends a start without the last byte of its body, and returns that byte.
func (s *devServer) sendPartialStart() (c net.Conn, last string) {
	s.t.Helper()
	return s.sendPartialStartTo("tcp", strings.TrimPrefix(s.URL, "http://"))
}

func (s *devServer) sendPartialStartTo(network, address string) (c net.Conn, last string) {
	s.t.Helper()
	c, err := net.Dial(network, address)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	body := `{"agent": "tidy", "message": "x"}`
	_, err = fmt.Fprintf(c, "POST /v1/runs HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
		strings.TrimPrefix(s.URL, "http://"), s.token, len(body))
	require.NoError(s.t, err)
	got := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(c, got) // the handler reads the body: it is in the middle of the request
	require.NoError(s.t, err)
	_, err = io.WriteString(c, body[:len(body)-1])
	require.NoError(s.t, err)
	return c, body[len(body)-1:]
}

// The first Ctrl-C lets requests end, ends streams and connections that nobody uses, and exits 0; what waits is carried
// on by the next command. The second one ends at once.
func TestDevEndsWithCtrlC(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	p := startDevProcess(t, d)
	run := p.startRun("tidy")
	p.waitForEvent(run, "parked")

	second := newCommandProcess(t, d, "dev", "--addr", "127.0.0.1:0")
	out, err := second.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, second.ProcessState.ExitCode())
	require.Contains(t, string(out), fmt.Sprintf("is served already, by process %d, countersign dev on %s", p.cmd.Process.Pid, p.URL))
	require.NotContains(t, string(out), p.token)

	ahead, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://")) // as browsers do
	require.NoError(t, err)
	t.Cleanup(func() { _ = ahead.Close() })
	c, last := p.sendPartialStart()
	began := time.Now()
	p.interrupt()
	p.waitForEndNote()
	_, err = io.WriteString(c, last)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, resp.StatusCode)
	require.NoError(t, p.cmd.Wait())
	require.Less(t, time.Since(began), defaultGrace)

	again := startDevProcess(t, d)
	require.Equal(t, p.token, again.token)
	approve := newCommandProcess(t, d, "approve", again.loadRun(run).Waiting[0].Approval)
	out, err = approve.CombinedOutput()
	require.NoError(t, err, string(out))
	again.waitForEvent(run, "finished")
	_, _ = again.sendPartialStart()
	again.interrupt()
	again.waitForEndNote()
	again.interrupt()
	var ended *exec.ExitError
	require.ErrorAs(t, again.cmd.Wait(), &ended)
	require.Equal(t, syscall.SIGINT, ended.Sys().(syscall.WaitStatus).Signal())
}

// What keeps dev from ending is cut off after the grace, and is no failure.
func TestDevCutsOffWhatDoesNotEnd(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	t.Chdir(d.dir)
	d.grace = 10 * time.Millisecond
	s, stop := d.startDev()
	_, _ = s.sendPartialStart()
	_, _ = s.sendPartialStartTo("unix", local.SocketPath(d.home()))
	who := stop()
	require.Equal(t, 2, strings.Count(who.stderr.String(), "requests were cut off"), who.stderr.String())
}

// An answer names the request. The same order, sent again and again, is carried out once: a call that is lost again is
// asked about under a new request, and waits for an order of its own.
func TestAnAnswerNamesItsRequest(t *testing.T) {
	d := newHarness(t, strings.ReplaceAll(holdingAgent, "hold", "charge")+"permission: {default: allow}\n", `{"calls": [{"id": "c1", "name": "charge"}]}`+"\n"+`{"text": "Charged."}`)
	started := d.exits(3, "run", d.dir, "--message", "x", "--key", "k", "--json")
	var r web.Run
	require.NoError(t, json.Unmarshal([]byte(started.stdout.String()), &r))
	s, stop := d.startDev()
	input := "/v1/runs/" + r.ID + "/input"
	// asked waits until the call is asked about for the n-th time.
	asked := func(n int) string {
		for {
			if now := s.loadRun(r.ID); len(now.Waiting) == 1 && now.Calls[0].Executions == n {
				return now.Waiting[0].Approval
			}
		}
	}
	accepted := func(status int, body string) web.Accepted {
		t.Helper()
		require.Equal(t, http.StatusAccepted, status, body)
		var a web.Accepted
		require.NoError(t, json.Unmarshal([]byte(body), &a))
		require.True(t, *a.Applied)
		return a
	}
	const order = `{"answers": [{"call": "c1", "id": "o1", "rerun": true}]}`
	first := asked(1)
	require.False(t, accepted(s.do("POST", input, order, "Idempotency-Key", "k1")).Already)
	second := asked(2)
	require.NotEqual(t, first, second)
	for range 2 {
		require.True(t, accepted(s.do("POST", input, order, "Idempotency-Key", "k1")).Already)
		require.True(t, accepted(s.do("POST", input, `{"answers": [{"approval": "`+first+`", "rerun": true}]}`)).Already)
	}
	status, body := s.do("POST", input, `{"answers": [{"call": "c1", "rerun": true}]}`)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, `"type":"request-changed"`)
	require.Contains(t, body, second)
	status, body = s.do("POST", input, `{"answers": [{"approval": "`+first+`", "error": "no"}]}`)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, "rerun by user:local", "the first answer is told")
	require.Equal(t, 2, s.loadRun(r.ID).Calls[0].Executions)

	// By the key of the request alone, and by the name of the request.
	byKey := `{"answers": [{"approval": "` + second + `", "rerun": true}]}`
	require.False(t, accepted(s.do("POST", input, byKey, "Idempotency-Key", "k2")).Already)
	third := asked(3)
	require.True(t, accepted(s.do("POST", input, `{"answers": [{"call": "c1", "rerun": true}]}`, "Idempotency-Key", "k2")).Already)

	// At the command line the call's name does, and what was said already is told.
	stop()
	again := d.exits(3, "answer", r.ID, second, "--rerun")
	require.Contains(t, again.stderr.String(), "was told that already: nothing was changed")
	d.exits(0, "answer", r.ID, "c1", "--result", `"paid"`)
	require.Equal(t, 3, d.loadRun(r.ID).Calls[0].Executions)
	settled := d.run(t.Context(), "", "approvals", "--status", "approved", "--json").stdout.String()
	require.Contains(t, settled, third)
}

// Whoever has no token of a callback, or of a link, leaves nothing behind in the store directory.
func TestStrangersWriteNothing(t *testing.T) {
	d := newHarness(t, renamingAgent, movingModel)
	s := startHarness(t, d)
	before, err := filepath.Glob(filepath.Join(d.home(), "*"))
	require.NoError(t, err)
	for _, path := range []string{"/v1/callbacks/AAAA", approval.LinkPath + strings.Repeat("A", 80)} {
		for _, method := range []string{"GET", "POST"} {
			status, body := s.do(method, path, `{"result": 1}`, "Authorization", "")
			require.GreaterOrEqual(t, status, 400, "%s %s: %s", method, path, body)
		}
	}
	after, err := filepath.Glob(filepath.Join(d.home(), "*"))
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Whoever opens the socket says who acts, and never for which tenant: there is one.
func TestASocketsCallerChoosesNoTenant(t *testing.T) {
	home := t.TempDir()
	people := "default: user:ana\n" + `people: {"user:ana": ["group:finance"]}`
	require.NoError(t, os.WriteFile(filepath.Join(home, "principals.yaml"), []byte(people), 0o600))
	known, err := readPrincipals(home)
	require.NoError(t, err)
	who := newCallerFunc(known)
	for _, headers := range [][]string{
		nil, {"Tenant", "acme"}, {"X-Tenant", "acme"}, {"Countersign-Tenant", "acme"}, {"Authorization", "Bearer acme"}, {"Cookie", "tenant=acme"},
	} {
		r := httptest.NewRequest("GET", "http://acme/v1/runs?tenant=acme", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		got, err := who(r)
		require.NoError(t, err)
		require.Equal(t, web.Caller{Tenant: local.Tenant, Principal: policy.Principal{ID: "user:ana", Groups: []string{"group:finance"}}}, got)
	}
	for as, refused := range map[string]bool{
		"user:eve": false, "user:eve,group:operators": false,
		"acme": true, "tenant:acme": true, "user:eve@acme#x": true, "default/acme": true, "user:ana,tenant:acme": true,
	} {
		r := httptest.NewRequest("GET", "/v1/runs", nil)
		r.Header.Set(web.AsHeader, as)
		got, err := who(r)
		require.Equal(t, refused, err != nil, as)
		require.Equal(t, local.Tenant, got.Tenant, as)
	}
}
