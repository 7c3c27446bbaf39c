package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// setAWS sets the environment of the AWS SDK, which reads the process' own, with more variables.
func setAWS(t *testing.T, more map[string]string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value)
	}
	for name, value := range more {
		t.Setenv(name, value)
	}
}

// startTables starts a DynamoDB that has the items that are put. It gives what it was asked: operation and request.
func startTables(t *testing.T) *[][2]string {
	t.Helper()
	asked := &[][2]string{} // commands send one request at a time
	stored := map[string][]json.RawMessage{}
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		*asked = append(*asked, [2]string{operation, string(body)})
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		var in struct {
			Item                      json.RawMessage
			ExpressionAttributeValues map[string]struct{ S string }
		}
		var key struct{ PK struct{ S string } }
		if err := errors.Join(json.Unmarshal(body, &in), json.Unmarshal([]byte(cmp.Or(string(in.Item), "{}")), &key)); err != nil {
			t.Error(err)
		}
		stored[key.PK.S] = append(stored[key.PK.S], in.Item)
		found := []json.RawMessage{}
		for _, v := range in.ExpressionAttributeValues {
			found = append(found, stored[v.S]...)
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"Items": found, "Count": len(found)}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(tables.Close)
	setAWS(t, map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": tables.URL})
	return asked
}

// People are imported into the table that the environment names: who is new is put there, and who is there and not in the
// file is removed. A file that is wrong, or no table, writes nothing.
func TestImportPeople(t *testing.T) {
	asked := startTables(t)
	d := newHarness(t, holdingAgent, `{"text": "Done."}`)
	file := filepath.Join(t.TempDir(), "people.json")
	importing := func(text string) *commandResult {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return d.run(context.Background(), "", "people", "import", file)
	}
	got := importing(`{"tenants": {"acme": {"user:ana": ["group:finance"]}}}`)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr.String(), "COUNTERSIGN_TABLE: want a value, got none")
	d.env = map[string]string{"COUNTERSIGN_TABLE": "runs"}
	got = importing(`{"tenants": {"acme": {"user:ana": ["finance"]}}}`)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr.String(), "people.json: line 1: tenants.acme.user:ana")
	require.Empty(t, *asked)
	got = importing(`{"tenants": {"acme": {"user:ana": ["group:finance"]}}, "slack": {"T0ACME": "acme"}}`)
	require.Zero(t, got.code, got.stderr.String())
	require.Equal(t, "2 written, 0 removed: they count within a minute\n", got.stdout.String())
	var put []string
	for _, a := range *asked {
		if a[0] == "Query" {
			continue
		}
		var in struct{ Item map[string]map[string]any }
		require.NoError(t, json.Unmarshal([]byte(a[1]), &in))
		put = append(put, in.Item["PK"]["S"].(string)+" "+in.Item["SK"]["S"].(string))
	}
	require.Equal(t, []string{"T#acme#PEOPLE user:ana", "PEOPLE T0ACME"}, put)
}

// TestRehearseOfADeploymentReadsAlone: it queries the table that the environment names, for the tenant's open runs, and
// writes nothing. A test is exported of the same table. Ids are what was typed.
func TestRehearseOfADeploymentReadsAlone(t *testing.T) {
	asked := startTables(t)
	d := newHarness(t, holdingAgent, `{"text": "Done."}`)
	d.env = map[string]string{"COUNTERSIGN_TABLE": "runs", "COUNTERSIGN_BUCKET": "blobs"}
	who := d.exits(0, "rehearse", "--deployed", "--tenant", "acme")
	require.Equal(t, "nothing is open\n", who.stdout.String())
	require.Len(t, *asked, 2*8)
	for i, a := range *asked {
		require.Equal(t, "Query", a[0])
		require.Contains(t, a[1], fmt.Sprintf("T#acme#RUNS#%s#%d", []string{"waiting", "running"}[i/8], i%8))
	}
	who = d.exits(2, "export", oddRun, "--test", "--deployed", "--tenant", "acme")
	require.Contains(t, who.stderr.String(), "export run "+oddRun+" as a test: no such run")
	require.Contains(t, (*asked)[len(*asked)-1][1], "T#acme#RUN#"+oddRun)
	require.NoDirExists(t, d.home())

	d.exits(0, "run", d.dir, "--message", "x")
	_, id, _ := strings.Cut(d.exits(0, "runs", "--json").stdout.String(), `"id": "`)
	for _, args := range [][]string{{"export", id[:5], "--test"}, {"rehearse", id[:5]}, {"delete", id[:5], "--yes"}} {
		before := len(*asked)
		who := d.exits(2, append(args, "--deployed")...)
		require.Greater(t, len(*asked), before, args)
		require.Contains(t, who.stderr.String(), id[:5], args)
		require.NotContains(t, fmt.Sprint(*asked, who.stderr.String()), id[:26], "%s: the run of this machine", args)
	}
}
