package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// A picture too large for a request is put where the API says, straight into the bucket, and named by its digest; the
// model sees it.
func TestPictureByUpload(t *testing.T) {
	model := standins.NewBedrock(standins.Reply{Blocks: []standins.Block{standins.Text("A chair.")}})
	t.Cleanup(model.Close)
	d := deploy(t, model)
	ana := d.anaClient()
	picture := append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{7}, 300<<10)...)
	b := web.Blob{MediaType: "image/png", Bytes: int64(len(picture)), SHA256: store.BlobDigest(picture)}
	start := refundStart("k")
	start.Message = json.RawMessage(fmt.Sprintf(`[{"type":"text","text":"What is this?"},{"type":"media","name":"a.png","mediaType":"image/png","blob":%q}]`, b.SHA256))
	_, err := ana.Start(t.Context(), start)
	requireProblem(t, err, 400, web.UnknownBlob)

	named, err := ana.Upload(t.Context(), b, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(picture)), nil })
	require.NoError(t, err)
	require.Equal(t, b.SHA256, named)
	started, err := ana.Start(t.Context(), start)
	require.NoError(t, err)
	s := d.waitFor(acme, started.ID, isDone)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason, "%+v", s.Error)
	require.Contains(t, string(model.Requests()[0].Body), base64.StdEncoding.EncodeToString(picture))

	_, err = d.client("other", "eve").Start(t.Context(), start)
	requireProblem(t, err, 400, web.UnknownBlob)
}
