package runtime

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrUnknownBlob says that a message names a blob that its tenant does not have.
var ErrUnknownBlob = errors.New("this tenant has no such blob: upload it first")

// checkMedia refuses blocks that name a missing blob, before anything else is written: the run could not show such a
// blob to its model. It records the run as a user of the blobs, and then checks again, because a blob may have been
// deleted meanwhile.
func (p Ports) checkMedia(ctx context.Context, tenant, runID string, blocks []run.UserBlock) error {
	var blobs []string
	check := func() error {
		for i, b := range blocks {
			m, ok := b.Block.(run.Media)
			if !ok || m.Blob == "" || slices.Contains(blobs, m.Blob) {
				continue
			}
			size := int64(0)
			if agent.ValidDigest(m.Blob) {
				var err error
				size, err = p.Blobs.Size(ctx, tenant, m.Blob)
				if err != nil && !errors.Is(err, store.ErrNoBlob) {
					return err
				}
			}
			if size <= 0 { // the blob is missing or empty
				return fmt.Errorf("block %d: blob %q: %w", i, m.Blob, ErrUnknownBlob)
			}
			blobs = append(blobs, m.Blob)
		}
		return nil
	}
	if err := check(); err != nil || len(blobs) == 0 {
		return err
	}
	for _, digest := range blobs {
		if err := p.noteBlob(ctx, tenant, runID, digest); err != nil {
			return err
		}
	}
	blobs = nil
	return check()
}

// blobTries is how often, a quarter of a second apart, a run tries to be recorded for a blob that is being deleted.
const blobTries = 8

// noteBlob records that a run uses a blob. It waits while the blob is being deleted, so that no result is lost.
func (p Ports) noteBlob(ctx context.Context, tenant, runID, digest string) (err error) {
	ended := clock.Retry(ctx, p.Clock, func(n int) (time.Duration, bool) {
		err = p.Journal.NoteBlob(ctx, tenant, runID, digest)
		return 250 * time.Millisecond, n < blobTries && errors.Is(err, store.ErrConflict)
	})
	return errors.Join(err, ended)
}

// putBlob stores a blob of a run, before the entry that refers to it.
func (p Ports) putBlob(ctx context.Context, tenant, runID, digest string, data []byte) error {
	if err := p.noteBlob(ctx, tenant, runID, digest); err != nil {
		return err
	}
	return p.Blobs.Put(ctx, tenant, digest, data)
}

// WithMedia returns a model that replaces blobs in requests to next by base64 in Data, the only form that adapters
// accept. Of each request at most prompt.MaxRequestMedia bytes are read, the newest media first; a text replaces the
// others. The request itself and the journal are not changed.
//
// A missing blob is a failed model call, which ends the run. Errors of the store may pass, and the caller may retry.
// Safe for concurrent use if next is.
func WithMedia(next Model, blobs store.Blobs) CountingModel {
	return rewriting{next, func(ctx context.Context, r agent.Request) (agent.Request, error) {
		named := prompt.MediaBlobs(r.Messages)
		if len(named) == 0 {
			return r, nil
		}
		sizes := make(map[string]int64, len(named))
		for _, digest := range named {
			n, err := blobs.Size(ctx, r.Tenant, digest)
			if err != nil {
				return r, unreadBlob(r, digest, err)
			}
			sizes[digest] = n
		}
		r.Messages = prompt.FitMedia(r.Messages, sizes, prompt.MaxRequestMedia)
		content := map[string]string{} // a blob that is named twice is read once
		for i, m := range r.Messages {
			b, ok := m.Block.(run.Media)
			if !ok || b.Blob == "" {
				continue
			}
			data, have := content[b.Blob]
			if !have {
				raw, err := blobs.Get(ctx, r.Tenant, b.Blob)
				if err != nil {
					return r, unreadBlob(r, b.Blob, err)
				}
				data = base64.StdEncoding.EncodeToString(raw)
				content[b.Blob] = data
			}
			r.Messages[i].Block = run.Media{Name: b.Name, MediaType: b.MediaType, Data: data}
		}
		return r, nil
	}}
}

// CountingModel is a Model that counts tokens.
type CountingModel interface {
	Model
	TokenCounter
}

// rewriting passes requests to next after rewrite has changed them.
type rewriting struct {
	next    Model
	rewrite func(context.Context, agent.Request) (agent.Request, error)
}

func (w rewriting) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	r, err := w.rewrite(ctx, r)
	if err != nil {
		return agent.Reply{}, err
	}
	return w.next.Generate(ctx, r)
}

func (w rewriting) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	r, err := w.rewrite(ctx, r)
	if err != nil {
		return 0, err
	}
	return CountWith(ctx, w.next, r)
}

// WithDialect returns a model that sends requests for models of agent.DialectXML to next with calls as text and without
// native tools. Replies are parsed where they are planned, also those of a script. Other requests pass unchanged. Safe
// for concurrent use if next is.
func WithDialect(next Model) CountingModel {
	return rewriting{next, func(_ context.Context, r agent.Request) (agent.Request, error) {
		if r.Model.Dialect == agent.DialectXML {
			r = policy.WithCallsAsText(r)
		}
		return r, nil
	}}
}

func unreadBlob(r agent.Request, digest string, err error) error {
	if errors.Is(err, store.ErrNoBlob) {
		return &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Cause: err,
			Message: "the conversation names the blob " + digest + ", which is not in the store any more"}
	}
	return fmt.Errorf("read media of run %s: %w", r.Run, err)
}
