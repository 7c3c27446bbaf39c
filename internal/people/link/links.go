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

// ErrInvalid says that a token is not one of ours, or no longer. It is the answer to whatever is wrong with one.
var ErrInvalid = errors.New("there is no such link")

// Links makes and reads the links of one deployment; it is a notify.Links. All fields are required. Safe for concurrent use.
type Links struct {
	Table  store.Table
	Signer Signer
	Clock  clock.Clock
	IDs    *ids.Source
	Base   func() string // where pages are reached, as https://api.example.com; "" = nowhere, so that there are no links
}

// The item of a link.
const (
	itemSK  = "L"
	ttlAttr = "TTL" // in epoch seconds: the table may forget it then. No gate reads it (A14)
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

// Mint is the token of a new link, which is kept first.
func (l *Links) Mint(ctx context.Context, a approval.Approval, to, channel string) (string, error) {
	made := Link{
		Tenant: a.Tenant, Approval: a.ID, Run: a.Run, Call: a.Call(), Digest: a.Digest, To: to, Channel: channel, Nonce: l.IDs.Token(),
		Expires: a.ExpiresAt.Add(OpenAfterExpiry).Truncate(time.Second).UTC(),
	}
	made.ID = made.digest(version)
	body, err := run.MarshalVerbatim(made)
	if err != nil {
		return "", fmt.Errorf("marshal a link of approval %s: %w", a.ID, err)
	}
	key, mac, err := l.Signer.Sign(ctx, audience, signedFields(version, made.ID)...)
	if err != nil {
		return "", fmt.Errorf("sign a link of approval %s: %w", a.ID, err)
	}
	t := token{version: version, key: key, id: made.ID, mac: mac}
	if !ValidKeyID(t.key) || len(mac) != macSize {
		return "", fmt.Errorf("sign a link of approval %s: want the id of a key and a MAC of %d bytes", a.ID, macSize)
	}
	op := store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: itemKey(made.ID), Body: body, Attrs: map[string]store.Value{ttlAttr: store.Num(made.Expires.Unix())},
	}}
	if err := l.Table.Write(ctx, op); err != nil {
		return "", fmt.Errorf("keep a link of approval %s: %w", a.ID, err)
	}
	return t.String(), nil
}

// Verify is the id of the link whose token a text is, by the token's MAC alone: it reads nothing. ErrInvalid says that
// the text is no token of ours; any other error is the signer's.
func (l *Links) Verify(ctx context.Context, text string) (id string, err error) {
	t, formed := readToken(text)
	if !formed {
		return "", ErrInvalid
	}
	right, err := l.Signer.Verify(ctx, t.mac, t.key, audience, signedFields(t.version, t.id)...)
	switch {
	case err != nil:
		return "", fmt.Errorf("verify a link: %w", err)
	case !right:
		return "", ErrInvalid
	}
	return t.id, nil
}

// Read is the link of an id that Verify gave. A link that is over, or is kept otherwise than it was made, is ErrInvalid;
// any other error is the table's. Whether the request can still be decided is the desk's to say.
func (l *Links) Read(ctx context.Context, id string) (Link, error) {
	it, found, err := l.Table.Get(ctx, itemKey(id))
	if err != nil {
		return Link{}, fmt.Errorf("read a link: %w", err)
	}
	if !found {
		return Link{}, ErrInvalid
	}
	var kept Link
	if err := run.ReadStored("link", it.Body, &kept); err != nil {
		return Link{}, fmt.Errorf("read a link: %w", store.Damaged(it.Key, "%w", err))
	}
	if kept.ID != id || kept.digest(version) != id || !l.Clock.Now().Before(kept.Expires) {
		return Link{}, ErrInvalid
	}
	return kept, nil
}
