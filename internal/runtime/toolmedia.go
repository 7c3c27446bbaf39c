package runtime

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The bounds of what one result of a tool gives as media.
const (
	maxMedia     = 128 << 10     // base64 that stands in the journal itself; the rest are blobs
	maxToolMedia = store.MaxBlob // bytes in all, before base64
	maxMediaName = 200           // runes
)

// storedMedia is a result's media as they are stored, with notices to the model about those that are not.
type storedMedia struct {
	media   []run.Media
	notices []string
	inline  int // bytes of base64 so far
	total   int // bytes before base64 so far
}

// storeMedia stores media that fit no entry as blobs, before the entry that points at them. Media that cannot be kept
// are left out with a notice, because the call has happened. Errors are the store's.
func (r *round) storeMedia(ctx context.Context, media []run.Media) (storedMedia, error) {
	var k storedMedia
	for i, m := range media {
		if i == agent.MaxMessageMedia {
			k.notices = append(k.notices, fmt.Sprintf("[%d more media are left out: one result has at most %d]", len(media)-i, i))
			break
		}
		m.Name = shortName(m.Name)
		stored, why, err := r.storeOneMedia(ctx, &k, m)
		if err != nil {
			return storedMedia{}, err
		}
		if why != "" {
			k.notices = append(k.notices, agent.TextMediaLeftOut(m, why))
			continue
		}
		k.media = append(k.media, stored)
	}
	return k, nil
}

// storeOneMedia stores one of them, or says why not.
func (r *round) storeOneMedia(ctx context.Context, k *storedMedia, m run.Media) (stored run.Media, why string, err error) {
	if err := m.Check(); err != nil {
		return m, err.Error(), nil
	}
	if m.Blob != "" {
		there, err := r.hasBlob(ctx, r.inv.Tenant, m.Blob)
		if err != nil || there {
			return m, "", err
		}
		return m, "there is no such blob", nil
	}
	raw, err := base64.StdEncoding.DecodeString(m.Data)
	if err != nil || len(raw) == 0 {
		return m, "its data is not base64", nil
	}
	if k.total+len(raw) > maxToolMedia {
		return m, fmt.Sprintf("one result gives at most %d bytes of media", maxToolMedia), nil
	}
	k.total += len(raw)
	if k.inline+len(m.Data) <= maxMedia {
		k.inline += len(m.Data)
		return m, "", nil
	}
	m.Data, m.Blob = "", store.BlobDigest(raw)
	return m, "", r.Blobs.Put(ctx, r.inv.Tenant, m.Blob, raw)
}

// shortName is a name that is valid text and fits.
func shortName(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if r := []rune(name); len(r) > maxMediaName {
		return string(r[:maxMediaName])
	}
	return name
}
