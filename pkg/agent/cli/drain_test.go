package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/web"
)

// paymentServer takes payments over HTTP. The test ends each of them.
type paymentServer struct {
	*httptest.Server
	entered, release chan struct{}
}

func newPaymentServer(t *testing.T) *paymentServer {
	t.Helper()
	b := &paymentServer{entered: make(chan struct{}, 10), release: make(chan struct{}, 10)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.entered <- struct{}{}
		select {
		case <-b.release:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte("paid"))
	}))
	t.Cleanup(b.Close)
	return b
}

// newPayerHarness returns a harness whose agent makes two payments in a row.
func newPayerHarness(t *testing.T, b *paymentServer) *harness {
	t.Helper()
	d := newHarness(t, strings.ReplaceAll(`name: payer
system: You pay.
model: {provider: script, file: model.jsonl}
permission: {default: allow}
executor: sequential
tools:
  - {name: pay, kind: http, method: POST, url: "BANK/pay", description: Pays., schema: {type: object}}
`, "BANK", b.URL), `{"calls": [{"id": "p1", "name": "pay", "input": {}}, {"id": "p2", "name": "pay", "input": {}}]}
{"text": "Paid."}`)
	t.Setenv("COUNTERSIGN_PRIVATE_HOSTS", strings.TrimPrefix(b.URL, "http://"))
	d.env = map[string]string{"COUNTERSIGN_PRIVATE_HOSTS": strings.TrimPrefix(b.URL, "http://")}
	return d
}

// formatPayments returns the outcome of the two payments and how often each was made.
func (d *harness) formatPayments(run string) string {
	d.t.Helper()
	r := d.loadRun(run)
	var all []string
	for _, c := range r.Calls {
		all = append(all, fmt.Sprintf("%s %s %d", c.ID, c.Status, c.Executions))
	}
	return strings.Join(all, ", ")
}

// A payment that is under way when dev is asked to end, or its terminal is closed, is let end, and its result is kept; the next one is not
// begun. A second signal ends at once.
func TestDevEndsOnceWhatIsUnderWayHasEnded(t *testing.T) {
	b := newPaymentServer(t)
	d := newPayerHarness(t, b)
	p := startDevProcess(t, d)
	run := p.startRun("payer")
	<-b.entered
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.waitForEndNote()
	line, err := p.stderr.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "what is under way of run "+run+" has 20s to end; Ctrl-C ends at once")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	b.release <- struct{}{}
	require.NoError(t, p.cmd.Wait(), "it ends with 0")
	require.Empty(t, b.entered, "the second payment was not begun")
	require.Equal(t, "p1 succeeded 1, p2 new 0", d.formatPayments(run))

	p = startDevProcess(t, d)
	<-b.entered
	ends := os.Signal(syscall.SIGHUP)
	if signal.Ignored(ends) { // the tests run under nohup
		ends = os.Interrupt
	}
	require.NoError(t, p.cmd.Process.Signal(ends))
	p.waitForEndNote()
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Error(t, p.cmd.Wait())
	require.Equal(t, syscall.SIGINT, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Equal(t, "p1 succeeded 1, p2 running 1", d.formatPayments(run))
}

// A command that has the store and ends lets the calls end that it carries out for other commands, which take the store over then.
func TestACommandThatEndsCutsOffNoOthers(t *testing.T) {
	b := newPaymentServer(t)
	d := newPayerHarness(t, b)
	d.write("short/model.jsonl", holdingModel)
	d.write("short/agent.yaml", holdingAgent)
	program, output := d.newProgram("")
	first := make(chan int, 1)
	go func() {
		first <- program.run(t.Context(), []string{"run", filepath.Join(d.dir, "short"), "--message", "x"})
	}()
	<-d.entered
	second := d.start(t.Context(), "run", d.dir, "--message", "x", "--json")
	<-b.entered // the first command's process makes the payment
	d.release <- struct{}{}
	require.Eventually(t, func() bool { return strings.Contains(output.stderr.String(), "what is under way of run") },
		time.Minute, 5*time.Millisecond, "the first command begins nothing more")
	b.release <- struct{}{}
	require.Equal(t, 0, <-first)
	<-b.entered // the other one's makes the next
	b.release <- struct{}{}
	who := <-second
	require.Equal(t, 0, who.code, who.stderr.String())
	runs := d.run(t.Context(), "", "runs", "--agent", "payer").stdout.String()
	require.Equal(t, "p1 succeeded 1, p2 succeeded 1", d.formatPayments(runs[:26]))
	require.Empty(t, b.entered)
}

// A command about one run leaves the other open runs alone.
func TestACommandCarriesOnNoOtherRun(t *testing.T) {
	b := newPaymentServer(t)
	d := newPayerHarness(t, b)
	d.write("short/agent.yaml", renamingAgent+"permission: {default: ask}\n")
	d.write("short/model.jsonl", strings.ReplaceAll(renamingModel, "\n\t", " "))
	p := startDevProcess(t, d)
	open := p.startRun("payer")
	<-b.entered
	p.kill()
	start := []string{"run", filepath.Join(d.dir, "short"), "--message", "x", "--key", "k"}
	short, id := agent.RunID(local.Tenant, "tidy", "k"), ""
	for _, c := range []struct {
		code int
		args []string
	}{
		{3, start}, {3, start}, {3, []string{"send", short, "--message", "y"}}, {3, []string{"fork", short, "--at", "0"}},
		{3, []string{"approve"}}, {0, []string{"deny"}}, {0, []string{"cancel", short}},
		{0, []string{"events", short, "--follow"}},
	} {
		if len(c.args) == 1 {
			c.args = append(c.args, id)
		}
		who := d.exits(c.code, c.args...)
		id = regexp.MustCompile("a[a-z2-7]{25}").FindString(who.stdout.String())
		require.Equal(t, "p1 running 1, p2 new 0", d.formatPayments(open), c.args)
	}
	d.exits(3, "resume")
	require.Equal(t, "p1 suspended 1, p2 new 0", d.formatPayments(open))
}

func (d *harness) loadRun(run string) (r web.Run) {
	d.t.Helper()
	who := d.exits(0, "show", run, "--json")
	require.NoError(d.t, json.Unmarshal([]byte(who.stdout.String()), &r))
	return r
}

// Whoever is slow to send a request, or sends none, is cut off; an event stream goes on, however long nothing happens.
func TestDevBoundsWhoeverIsSlow(t *testing.T) {
	d := newHarness(t, holdingAgent, holdingModel)
	d.bounds = timeouts{header: 50 * time.Millisecond, body: 50 * time.Millisecond, idle: 50 * time.Millisecond}
	s := startHarness(t, d)
	host := strings.TrimPrefix(s.URL, "http://")
	head := "POST /v1/runs HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + s.token + "\r\nContent-Type: application/json\r\nContent-Length: 40\r\n"
	for name, c := range map[string]struct{ sent, want string }{
		"slow header": {head, ""},
		"slow body":   {head + "\r\n{", "it was not all there in time"},
		"idle":        {"GET /v1/runs HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer " + s.token + "\r\n\r\n", `"items"`},
	} {
		for _, at := range []struct{ network, address string }{{"tcp", host}, {"unix", local.SocketPath(d.home())}} {
			conn, err := net.Dial(at.network, at.address)
			require.NoError(t, err)
			_, err = io.WriteString(conn, c.sent)
			require.NoError(t, err)
			answer, err := io.ReadAll(conn) // up to where the server closes it
			require.NoError(t, err, name)
			require.Contains(t, string(answer), c.want, name)
			require.NoError(t, conn.Close())
		}
	}

	run := s.startRun("holder")
	<-d.entered
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/runs/"+run+"/events", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	for range 3 { // longer than any of the bounds
		conn, err := net.Dial("tcp", host)
		require.NoError(t, err)
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	d.release <- struct{}{}
	events, err := io.ReadAll(stream.Body)
	require.NoError(t, err)
	require.NoError(t, stream.Body.Close())
	require.Contains(t, string(events), "event: finished")
}

// An order to run a call again outlives the process that carries it out: lost again, the call is asked about anew, and is not run a third time.
func TestAnOrderOutlivesItsServer(t *testing.T) {
	b := newPaymentServer(t)
	d := newPayerHarness(t, b)
	first := startDevProcess(t, d)
	run := first.startRun("payer")
	<-b.entered
	first.kill()
	second := startDevProcess(t, d)
	second.waitForEvent(run, "parked")
	ordered := d.start(t.Context(), "answer", run, "p1", "--rerun")
	<-b.entered
	second.kill()
	who := <-ordered // it has taken the store over
	require.Equal(t, 3, who.code, who.stderr.String())
	require.Contains(t, who.stdout.String(), "waits for word on what became of pay (p1)")
	require.Equal(t, "p1 suspended 2, p2 new 0", d.formatPayments(run))
	require.Empty(t, b.entered)
}

func (p *commandProcess) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	require.Error(p.t, p.cmd.Wait())
}

// Who follows a run that another process does not carry on is told so.
func TestAFollowerIsToldOfARunThatStandsStill(t *testing.T) {
	o := newDelegationHarness(t)
	known := o.registry
	o.exits(3, "run", o.dir, "--message", "look", "--key", "k")
	o.registry = testRegistry()
	t.Chdir(t.TempDir())
	_, stop := o.startDev()
	forked := o.exits(1, "fork", o.root, "--at", "0")
	require.Contains(t, forked.stderr.String(), "agent tidy is not known here")
	still := regexp.MustCompile(`run (r[a-z2-7]{25}) is not carried on`).FindStringSubmatch(forked.stderr.String())
	require.NotNil(t, still, forked.stderr.String())
	cancelled := o.run(t.Context(), "", "cancel", still[1])
	require.Equal(t, 0, cancelled.code, cancelled.stderr.String())
	require.Contains(t, cancelled.stdout.String(), "cancelled")
	stop()
	o.registry = known
	require.Equal(t, 3, o.run(t.Context(), "", "resume").code)
}
