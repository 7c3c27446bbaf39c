package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
)

// damageRecord request ID changes a byte of a request in the store's file; spoil run ID takes from a run's view whose it is;
// spoil execution RUN cuts off the record of a run's first execution; spoil journal RUN OLD NEW puts another text into the entries of a
// run, as who may write the store can.
func damageRecord(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 && (len(args) != 4 || args[0] != "journal") {
		ts.Fatalf("usage: spoil request|run|execution ID, or spoil journal RUN OLD NEW")
	}
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
