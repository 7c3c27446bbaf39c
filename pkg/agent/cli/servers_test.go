package cli

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/store/folder"
)

// lists AGENT SERVER TOOL DESCRIPTION... puts on record that a run of the agent has listed the server's tools like that.
func lists(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args)%2 != 0 {
		ts.Fatalf("usage: lists AGENT SERVER TOOL DESCRIPTION...")
	}
	home := ts.MkAbs(defaultHome)
	t, err := bolt.Open(filepath.Join(home, "store.db"), bolt.Options{})
	ts.Check(err)
	defer func() { ts.Check(t.Close()) }()
	blobs, err := folder.Open(filepath.Join(home, "blobs"))
	ts.Check(err)
	seen := approval.Sighting{Tenant: local.Tenant, Agent: args[0], Server: args[1], Run: "r1"}
	for i := 2; i < len(args); i += 2 {
		seen.Tools = append(seen.Tools, agent.ServerTool{
			Name: args[i], Description: args[i+1], Schema: json.RawMessage(`{"type":"object"}`), Digest: store.BlobDigest([]byte(args[i+1])),
		})
	}
	_, err = (&approval.ServerPins{Table: t, Blobs: blobs, Clock: clock.System()}).Saw(context.Background(), seen)
	ts.Check(err)
}

// newest AGENT sets RUN to the newest run of an agent.
func newest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: newest AGENT")
	}
	ts.Check(ts.Exec("countersign", "runs", "--agent", args[0], "--json"))
	var page struct{ Runs []struct{ ID string } }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &page))
	if len(page.Runs) == 0 {
		ts.Fatalf("no run of %s", args[0])
	}
	ts.Setenv("RUN", page.Runs[0].ID)
}
