package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// ErrInvalid says that a token is not valid, or no longer. It covers every defect of a token.
var ErrInvalid = errors.New("there is no such link")

// Links makes and reads the links of one deployment; it implements notify.Links. All fields are required. Safe for
// concurrent use.
type Links struct {
	Table  store.Table
	Signer Signer
	Clock  clock.Clock
	IDs    *ids.Source
	Base   func() string // address of the pages, as https://api.example.com; "" = no links
}

// The item of a link.
const (
	itemSK  = "L"
	ttlAttr = "TTL" // in epoch seconds, when the table may delete the item; no gate reads it (A14)
)

func itemKey(id string) store.Key { return store.Key{PK: "LINK#" + id, SK: itemSK} }

// URL implements notify.Links.
func (l *Links) URL(ctx context.Context, a approval.Approval, to, channel string) (string, error) {
	base := l.Base()
	if base == "" {
		return "", nil
	}
	text, err := l.Mint(ctx, a, to, channel)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(base, "/") + Path + text, nil
}

// Mint stores a new link and returns its token.
func (l *Links) Mint(ctx context.Context, a approval.Approval, to, channel string) (string, error) {
	link := Link{
		Tenant: a.Tenant, Approval: a.ID, Run: a.Run, Call: a.Call(), Digest: a.Digest, To: to, Channel: channel, Nonce: l.IDs.Token(),
		Expires: a.ExpiresAt.Add(OpenAfterExpiry).Truncate(time.Second).UTC(),
	}
	link.ID = link.digest(version)
	body, err := run.MarshalVerbatim(link)
	if err != nil {
		return "", fmt.Errorf("marshal a link of approval %s: %w", a.ID, err)
	}
	key, mac, err := l.Signer.Sign(ctx, audience, signedFields(version, link.ID)...)
	if err != nil {
		return "", fmt.Errorf("sign a link of approval %s: %w", a.ID, err)
	}
	t := token{version: version, key: key, id: link.ID, mac: mac}
	if !ValidKeyID(t.key) || len(mac) != macSize {
		return "", fmt.Errorf("sign a link of approval %s: want the id of a key and a MAC of %d bytes", a.ID, macSize)
	}
	op := store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: itemKey(link.ID), Body: body, Attrs: map[string]store.Value{ttlAttr: store.Num(link.Expires.Unix())},
	}}
	if err := l.Table.Write(ctx, op); err != nil {
		return "", fmt.Errorf("keep a link of approval %s: %w", a.ID, err)
	}
	return t.String(), nil
}

// Verify returns the link id of a token with a valid MAC, without reading the table. ErrInvalid says that the token is
// not valid; any other error is the signer's.
func (l *Links) Verify(ctx context.Context, text string) (id string, err error) {
	t, ok := readToken(text)
	if !ok {
		return "", ErrInvalid
	}
	valid, err := l.Signer.Verify(ctx, t.mac, t.key, audience, signedFields(t.version, t.id)...)
	switch {
	case err != nil:
		return "", fmt.Errorf("verify a link: %w", err)
	case !valid:
		return "", ErrInvalid
	}
	return t.id, nil
}

// Read returns the link with an id that Verify returned. ErrInvalid says that the link has expired, or that its record
// was changed; any other error is the table's. The desk decides whether the request can still be decided.
func (l *Links) Read(ctx context.Context, id string) (Link, error) {
	it, found, err := l.Table.Get(ctx, itemKey(id))
	if err != nil {
		return Link{}, fmt.Errorf("read a link: %w", err)
	}
	if !found {
		return Link{}, ErrInvalid
	}
	var stored Link
	if err := run.ReadStored("link", it.Body, &stored); err != nil {
		return Link{}, fmt.Errorf("read a link: %w", store.Damaged(it.Key, "%w", err))
	}
	if stored.ID != id || stored.digest(version) != id || !l.Clock.Now().Before(stored.Expires) {
		return Link{}, ErrInvalid
	}
	return stored, nil
}
