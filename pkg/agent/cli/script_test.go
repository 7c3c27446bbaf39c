package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/registry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/tool"
)

func TestMain(m *testing.M) {
	testscript.Main(standins.BrowserTests{M: m}, map[string]func(){
		"fileserver":  serveFiles,
		"countersign": func() { Main(testRegistry()) },
		"my-agents":   func() { Main(testRegistry()) }, // somebody else's program over the same agents
		"toolless":    func() { Main(registry.Must(registry.New())) },
	})
}

// TestScripts are the commands a person types: testdata/script/*.txtar.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0") // under -race every command would end a second later
			now := clock.System().Now().UTC()
			e.Setenv("TOMORROW", now.Add(24*time.Hour).Format(time.RFC3339))
			e.Setenv("NEXTWEEK", now.Add(7*24*time.Hour).Format(time.RFC3339))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "pending": pending, "document": document, "newest": newest, "spoil": damageRecord, "refuses": refuses, "beginning": beginning,
		},
	})
}

type nothing struct{}

// testRegistry has the built-in tools; charge, which takes longer than it may, so that nobody knows what became of it;
// and book, which asks for the day.
func testRegistry(more ...tool.Tool) *registry.Registry {
	tools, err := tool.Builtin()
	if err != nil {
		panic(err)
	}
	charge := tool.Must(tool.New("charge", "Charges.", run.EffectNonIdempotent, func(ctx context.Context, _ tool.Call, _ nothing) (agent.ToolResultData, error) {
		<-ctx.Done()
		return agent.ToolResultData{}, ctx.Err()
	}, &tool.Options[nothing]{Timeout: 10 * time.Millisecond}))
	count := tool.Must(tool.New("count", "Counts.", run.EffectIdempotent, func(_ context.Context, c tool.Call, _ nothing) (agent.ToolResultData, error) {
		n, _, err := tool.State[int](c, "/count")
		if err != nil {
			return agent.ToolResultData{}, err
		}
		return tool.Patched(tool.Text("counted"), tool.SetState("/count", n+1))
	}, nil))
	book := tool.Must(tool.New("book", "Books.", run.EffectNonIdempotent, func(_ context.Context, c tool.Call, _ nothing) (agent.ToolResultData, error) {
		if c.Resume == nil {
			return tool.Ask(run.Ticket{
				ID: "day", Message: "Which day?", Parameters: json.RawMessage(`{"from":"Monday"}`), ResponseSchema: json.RawMessage(`{"type":["string","boolean"]}`),
			}), nil
		}
		return tool.Text("booked for " + string(c.Resume)), nil
	}, nil))
	return registry.Must(registry.New(append(append(tools, charge, count, book), more...)...))
}

// usage ends a script that has a command in another form.
func usage(ts *testscript.TestScript, wrong bool, form string) {
	if wrong {
		ts.Fatalf("usage: %s", form)
	}
}

// exits N COMMAND... wants a command to end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2, "exits N COMMAND...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var ended *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// pending [CALL] sets APPROVAL, RUN and CALL to those of a request that waits: the oldest, or that about a call.
func pending(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Exec("countersign", "approvals", "--json"))
	var page struct {
		Items []struct {
			ID, Run string
			Calls   []string
		}
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &page))
	for _, a := range page.Items {
		if len(args) == 0 || a.Calls[0] == args[0] {
			ts.Setenv("APPROVAL", a.ID)
			ts.Setenv("RUN", a.Run)
			ts.Setenv("CALL", a.Calls[0])
			return
		}
	}
	ts.Fatalf("no such request waits")
}

// beginning NAME ID sets NAME to the first six characters of an id.
func beginning(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], args[1][:6]) }

// refuses STATUS NAME starts a server that answers every request with that status, and sets NAME to its URL.
func refuses(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "refuses STATUS NAME")
	status, err := strconv.Atoi(args[0])
	ts.Check(err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	ts.Defer(server.Close)
	ts.Setenv(args[1], server.URL)
}

// document wants standard output to be exactly one JSON document; with POINTER VALUE pairs it holds these.
func document(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args)%2 != 0, "document [POINTER VALUE]...")
	var doc json.RawMessage
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	for i := 0; i < len(args); i += 2 {
		got, ok, err := jsonx.Lookup(doc, args[i])
		ts.Check(err)
		if !ok || strings.Trim(string(got), `"`) != args[i+1] {
			ts.Fatalf("%s: got %s, want %s", args[i], got, args[i+1])
		}
	}
}

// damageRecord request ID changes a byte of a request in the store's file; spoil run ID takes from a run's view whose
// it is; spoil execution RUN cuts off the record of a run's first execution; spoil journal RUN OLD NEW puts another
// text into the entries of a run, as who may write the store can.
func damageRecord(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2 && (len(args) != 4 || args[0] != "journal"), "spoil request|run|execution ID, or spoil journal RUN OLD NEW")
	file := filepath.Join(ts.MkAbs(defaultHome), "store.db")
	if args[0] == "request" {
		data, err := os.ReadFile(file)
		ts.Check(err)
		id := []byte(`"id":"` + args[1])
		if !bytes.Contains(data, id) {
			ts.Fatalf("there is no request %s", args[1])
		}
		ts.Check(os.WriteFile(file, bytes.ReplaceAll(data, id, []byte(`"ie":"`+args[1])), 0o600))
		return
	}
	t, err := bolt.Open(file, bolt.Options{})
	ts.Check(err)
	defer func() { ts.Check(t.Close()) }()
	key := store.RunKey("default", args[1])
	if args[0] == "journal" {
		page, err := t.Query(context.Background(), store.Range{PK: key.PK})
		ts.Check(err)
		for _, it := range page.Items {
			if bytes.Contains(it.Body, []byte(args[2])) {
				it.Body = bytes.ReplaceAll(it.Body, []byte(args[2]), []byte(args[3]))
				ts.Check(t.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
			}
		}
		return
	}
	if args[0] == "execution" {
		key = store.Key{PK: "X#open", SK: runtime.ExecutionName(args[1], 0)}
	}
	it, found, err := t.Get(context.Background(), key)
	ts.Check(err)
	if !found {
		ts.Fatalf("there is no %s %s", args[0], args[1])
	}
	if args[0] == "execution" {
		it.Body = it.Body[1:]
	}
	delete(it.Attrs, "owner")
	ts.Check(t.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
}

// serveFiles is an MCP server over its standard streams. Each line of tools.txt in its folder is a tool: name and
// description.
func serveFiles() {
	text, err := os.ReadFile("tools.txt")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "files", Version: "1"}, nil)
	for l := range strings.Lines(string(text)) {
		name, description, _ := strings.Cut(strings.TrimSpace(l), " ")
		s.AddTool(&sdk.Tool{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a.txt"}}}, nil
			})
	}
	if err := s.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// newest AGENT sets RUN to the newest run of an agent.
func newest(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "newest AGENT")
	ts.Check(ts.Exec("countersign", "runs", "--agent", args[0], "--json"))
	var page struct{ Items []struct{ ID string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &page))
	if len(page.Items) == 0 {
		ts.Fatalf("no run of %s", args[0])
	}
	ts.Setenv("RUN", page.Items[0].ID)
}
