package lambdafn

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
)

// A run that starts with an event may name a blob of its tenant. One that is not there ends the execution: nothing is written, and no
// retry would help.
func TestEventsMayNameBlobs(t *testing.T) {
	inBubble(t, func(t *testing.T, d *deployed) {
		digest, rivals := store.BlobDigest([]byte("shot")), store.BlobDigest([]byte("the rival's"))
		require.NoError(t, d.Ports.Blobs.Put(context.Background(), "acme", digest, []byte("shot")))
		require.NoError(t, d.Ports.Blobs.Put(context.Background(), "rival", rivals, []byte("the rival's")))
		event := func(blob string) string {
			return `{"tenant":"acme","agent":"clerk","key":"k","message":[{"type":"media","mediaType":"image/png","blob":"` + blob + `"}]}`
		}
		for _, blob := range []string{store.BlobDigest([]byte("nobody's")), rivals, "../x", strings.ToUpper(digest)} {
			_, err := d.invoke("step", "evt-1", event(blob))
			requireKind(t, KindInvalid, err)
		}
		d.must("step", "evt-1", event(digest))
		require.Equal(t, 1, d.asked)
	})
}
