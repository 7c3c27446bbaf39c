package approval

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
)

// LinkPath is where the pages are; the token follows.
const LinkPath = "/a/"

// OpenAfterExpiry is how long a link opens after its request has expired. A late visitor sees the outcome and can
// decide nothing.
const OpenAfterExpiry = 7 * 24 * time.Hour

// A token is the last segment of an address: unpadded base64url of the version, the length and text of the key's id,
// the link's id and the MAC. No two texts are the same token.
const (
	linkVersion  = 1
	linkIDSize   = 16  // bytes
	linkMACSize  = 32  // bytes
	maxLinkToken = 512 // characters
)

// Link is what an address stands for: one person's view of one request, and the right to decide it as that person.
type Link struct {
	ID       string    `json:"id"` // digest of the other fields, and the only one in the address
	Tenant   string    `json:"tenant"`
	Approval string    `json:"approval"`
	Run      string    `json:"run"`
	Call     string    `json:"call"`
	Digest   string    `json:"digest"`  // of the action in the request
	To       string    `json:"to"`      // a person's id
	Channel  string    `json:"channel"` // that sent it
	Nonce    string    `json:"nonce"`   // random, and in no address
	Expires  time.Time `json:"expires"` // the request's expiry plus OpenAfterExpiry, in whole seconds
}

// linkAudience separates these signatures from others made with the same keys.
const linkAudience = "approval-page"

// linkAlgorithm is the signature algorithm of every token version so far. It is signed as well.
const linkAlgorithm = "HMAC-SHA-256"

// digest returns the link's id: a digest of the version and of every field with its length (A3). It has 128 bits, so
// that nobody who can write the table can forge another link with the same id.
func (l Link) digest() string {
	sum := sha256.New()
	for _, field := range []string{
		string([]byte{linkVersion}), l.Tenant, l.Approval, l.Run, l.Call, l.Digest, l.To, l.Channel, l.Nonce,
		string(binary.BigEndian.AppendUint64(nil, uint64(l.Expires.Unix()))),
	} {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		sum.Write([]byte(field))
	}
	return hex.EncodeToString(sum.Sum(nil)[:linkIDSize])
}

// linkFields returns the fields that a token's MAC covers besides the audience and the key's id.
func linkFields(id string) []string { return []string{string([]byte{linkVersion}), linkAlgorithm, id} }

// ErrNoLink says that a token is not valid, or no longer valid. It covers every defect of a token.
var ErrNoLink = errors.New("there is no such link")

// Links makes and reads the links of one deployment: the addresses of requests' pages, one for each person who is told
// (approvals.md, A2 to A5). It implements people.Links. All fields but Sign are required. Safe for concurrent use.
//
// An address holds a version, the id of a key, the link's id and a MAC of these. The id is a digest of the link's
// fields, among them a random nonce, so that the MAC covers all of them and is checked without reading anything. The
// fields are stored under PK LINK#id, SK L, and cannot be read off the address. A decision does not delete a link: a
// second visit shows the outcome.
type Links struct {
	Table store.Table
	// Ring's keys verify: a link outlives a rotation as long as its key is kept (A4). A nil ring verifies nothing.
	Ring  func() (*secrets.Ring, error)
	Sign  func() (*secrets.Ring, error) // its newest key signs; nil = Ring
	Clock clock.Clock
	IDs   *clock.IDs
	Base  func() string // address of the pages, as https://api.example.com; "" = no links
}

// The item of a link.
const (
	linkSK  = "L"
	linkTTL = "TTL" // in epoch seconds, when the table may delete the item; no gate reads it (A14)
)

func linkKey(id string) store.Key { return store.Key{PK: "LINK#" + id, SK: linkSK} }

// linksIndex lists the links to a request.
func linksIndex(tenant, approval string) string {
	return "LINKS#" + store.BlobDigest([]byte(tenant+"#"+approval))
}

// DeleteLinks deletes the links to a request, and the codes that were sent for it.
func DeleteLinks(ctx context.Context, t store.Table, tenant, approval string) error {
	codes := codeKey(Link{Tenant: tenant, Approval: approval}).PK
	for _, r := range []store.Range{{PK: linksIndex(tenant, approval), Index: true}, {PK: codes}} {
		if _, err := store.DeleteRange(ctx, t, r, nil); err != nil {
			return err
		}
	}
	return nil
}

// URL implements people.Links.
func (l *Links) URL(ctx context.Context, a Approval, to, channel string) (string, error) {
	base := l.Base()
	if base == "" {
		return "", nil
	}
	text, err := l.Mint(ctx, a, to, channel)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(base, "/") + LinkPath + text, nil
}

// Mint stores a new link and returns its token.
func (l *Links) Mint(ctx context.Context, a Approval, to, channel string) (string, error) {
	link := Link{
		Tenant: a.Tenant, Approval: a.ID, Run: a.Run, Call: a.Call(), Digest: a.Digest, To: to, Channel: channel,
		Nonce:   l.IDs.Token(),
		Expires: a.ExpiresAt.Add(OpenAfterExpiry).Truncate(time.Second).UTC(),
	}
	link.ID = link.digest()
	body, err := jsonx.MarshalVerbatim(link)
	if err != nil {
		return "", fmt.Errorf("marshal a link of approval %s: %w", a.ID, err)
	}
	key, mac, err := l.sign(linkAudience, linkFields(link.ID)...)
	if err != nil {
		return "", fmt.Errorf("sign a link of approval %s: %w", a.ID, err)
	}
	op := store.Op{Kind: store.Put, If: []store.Cond{{Op: store.ItemAbsent}}, Item: store.Item{
		Key: linkKey(link.ID), Body: body, Index: linksIndex(a.Tenant, a.ID), IndexSort: link.ID,
		Attrs: map[string]store.Value{linkTTL: store.Num(link.Expires.Unix())},
	}}
	if err := l.Table.Write(ctx, op); err != nil {
		return "", fmt.Errorf("keep a link of approval %s: %w", a.ID, err)
	}
	id, _ := hex.DecodeString(link.ID) // it is a digest in hexadecimal
	raw := append([]byte{linkVersion, byte(len(key))}, key...)
	return base64.RawURLEncoding.EncodeToString(append(append(raw, id...), mac...)), nil
}

// sign returns the MAC of the newest key, and its id.
func (l *Links) sign(audience string, fields ...string) (key string, mac []byte, err error) {
	load := l.Ring
	if l.Sign != nil {
		load = l.Sign
	}
	ring, err := load()
	if err != nil {
		return "", nil, err
	}
	mac, _ = ring.Sign(ring.Newest(), audience, fields...) // the newest key is there
	return ring.Newest(), mac, nil
}

// Verify returns the link id of a token with a valid MAC, without reading the table. ErrNoLink says that the token is
// not valid; any other error is the ring's.
func (l *Links) Verify(text string) (id string, err error) {
	if len(text) > maxLinkToken || strings.ContainsAny(text, "\r\n") { // the decoder skips line ends
		return "", ErrNoLink
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < 2 || raw[0] != linkVersion || len(raw) != 2+int(raw[1])+linkIDSize+linkMACSize {
		return "", ErrNoLink
	}
	key, rest := raw[2:len(raw)-linkIDSize-linkMACSize], raw[len(raw)-linkIDSize-linkMACSize:]
	id = hex.EncodeToString(rest[:linkIDSize])
	ring, err := l.Ring()
	switch {
	case err != nil:
		return "", fmt.Errorf("verify a link: %w", err)
	case ring == nil || !ring.Verify(rest[linkIDSize:], string(key), linkAudience, linkFields(id)...):
		return "", ErrNoLink
	}
	return id, nil
}

// Read returns the link with an id that Verify returned. ErrNoLink says that the link has expired, or that its record
// was changed; any other error is the table's. The desk decides whether the request can still be decided.
func (l *Links) Read(ctx context.Context, id string) (Link, error) {
	it, found, err := l.Table.Get(ctx, linkKey(id))
	if err != nil {
		return Link{}, fmt.Errorf("read a link: %w", err)
	}
	if !found {
		return Link{}, ErrNoLink
	}
	var stored Link
	if err := jsonx.ReadStored("link", it.Body, &stored); err != nil {
		return Link{}, fmt.Errorf("read a link: %w", store.Damaged(it.Key, "%w", err))
	}
	if stored.ID != id || stored.digest() != id || !l.Clock.Now().Before(stored.Expires) {
		return Link{}, ErrNoLink
	}
	return stored, nil
}
