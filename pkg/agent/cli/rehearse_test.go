package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRehearseOfADeploymentReadsAlone: it queries the table that the environment names, for the tenant's open runs, and writes nothing.
// A test is exported of the same table.
func TestRehearseOfADeploymentReadsAlone(t *testing.T) {
	var mu sync.Mutex
	var asked, bodies []string
	tables := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			asked, bodies = append(asked, r.Header.Get("X-Amz-Target")), append(bodies, string(body))
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, `{"Items":[],"Count":0,"ScannedCount":0}`)
	}))
	defer tables.Close()
	d := newHarness(t, holdingAgent, `{"text": "Done."}`)
	d.env = map[string]string{"COUNTERSIGN_TABLE": "runs", "COUNTERSIGN_BUCKET": "blobs"}
	for name, value := range map[string]string{
		"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "SECRET", "AWS_SESSION_TOKEN": "",
		"AWS_ENDPOINT_URL_DYNAMODB": tables.URL, "AWS_PROFILE": "", "AWS_CONFIG_FILE": filepath.Join(t.TempDir(), "none"),
	} {
		t.Setenv(name, value) // the AWS SDK reads the process' own environment
	}
	who := d.run(context.Background(), "", "rehearse", "--deployed", "--tenant", "acme")
	require.Zero(t, who.code, who.stderr.String())
	require.Equal(t, "nothing is open\n", who.stdout.String())
	require.Equal(t, []string{"DynamoDB_20120810.Query", "DynamoDB_20120810.Query"}, asked)
	require.Contains(t, bodies[0], "T#acme#RUNS#waiting")
	require.Contains(t, bodies[1], "T#acme#RUNS#running")
	who = d.run(context.Background(), "", "export", oddRun, "--test", "--deployed", "--tenant", "acme")
	require.Equal(t, 1, who.code)
	require.Contains(t, who.stderr.String(), "export run "+oddRun+" as a test: ")
	require.Contains(t, bodies[len(bodies)-1], "T#acme#RUN#"+oddRun)
	require.NoDirExists(t, d.home())
}
