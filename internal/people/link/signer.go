package link

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/secrets"
)

// Signer makes and checks MACs: HMAC-SHA-256 over an audience, a key's id and fields, each with its length. Ring
// implements it. Safe for concurrent use.
type Signer interface {
	// Sign returns the MAC, of 32 bytes, by the newest key, whose id is 1 to 64 letters, digits, - and _.
	Sign(ctx context.Context, audience string, fields ...string) (key string, mac []byte, err error)
	// Verify reports whether mac is the one that the key of that id makes. An unknown key is no error.
	Verify(ctx context.Context, mac []byte, key, audience string, fields ...string) (bool, error)
}

// Ring signs with the newest key of a ring and verifies with all, so that a link outlives a rotation as long as its key
// is kept (A4).
type Ring func() (*secrets.Ring, error)

// Sign implements Signer.
func (r Ring) Sign(_ context.Context, audience string, fields ...string) (key string, mac []byte, err error) {
	ring, err := r()
	if err != nil {
		return "", nil, fmt.Errorf("sign: %w", err)
	}
	mac, _ = ring.Sign(ring.Newest(), audience, fields...) // the newest key is there
	return ring.Newest(), mac, nil
}

// Verify implements Signer.
func (r Ring) Verify(_ context.Context, mac []byte, key, audience string, fields ...string) (bool, error) {
	ring, err := r()
	if err != nil {
		return false, fmt.Errorf("verify: %w", err)
	}
	return ring.Verify(mac, key, audience, fields...), nil
}
