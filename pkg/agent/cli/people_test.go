package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// People are imported into the table that the environment names: who is new is put there, and who is there and not in the
// file is removed. A file that is wrong, or no table, writes nothing.
func TestImportPeople(t *testing.T) {
	var puts []map[string]map[string]any
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // one that was cut is no JSON below
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if r.Header.Get("X-Amz-Target") != "DynamoDB_20120810.Query" {
			var in struct{ Item map[string]map[string]any }
			_ = json.Unmarshal(body, &in)
			puts = append(puts, in.Item)
			_, _ = io.WriteString(w, "{}")
			return
		}
		_, _ = io.WriteString(w, `{"Items":[],"Count":0,"ScannedCount":0}`)
	}))
	defer tables.Close()
	d := newHarness(t, holdingAgent, `{"text": "Done."}`)
	file := filepath.Join(t.TempDir(), "people.json")
	importing := func(text string) *commandResult {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return d.run(context.Background(), "", "people", "import", file)
	}
	for name, value := range map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_SESSION_TOKEN": "",
		"AWS_ENDPOINT_URL_DYNAMODB": tables.URL, "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value) // the AWS SDK reads the process' own environment
	}
	got := importing(`{"tenants": {"acme": {"user:ana": ["group:finance"]}}}`)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr.String(), "COUNTERSIGN_TABLE: want a value, got none")
	d.env = map[string]string{"COUNTERSIGN_TABLE": "runs"}
	got = importing(`{"tenants": {"acme": {"user:ana": ["finance"]}}}`)
	require.Equal(t, 2, got.code)
	require.Contains(t, got.stderr.String(), "people.json: line 1: tenants.acme.user:ana")
	require.Empty(t, puts)
	got = importing(`{"tenants": {"acme": {"user:ana": ["group:finance"]}}, "slack": {"T0ACME": "acme"}}`)
	require.Zero(t, got.code, got.stderr.String())
	require.Equal(t, "2 written, 0 removed: they count within a minute\n", got.stdout.String())
	require.Len(t, puts, 2)
	require.Equal(t, "T#acme#PEOPLE user:ana", puts[0]["PK"]["S"].(string)+" "+puts[0]["SK"]["S"].(string))
	require.Equal(t, "PEOPLE T0ACME", puts[1]["PK"]["S"].(string)+" "+puts[1]["SK"]["S"].(string))
}
