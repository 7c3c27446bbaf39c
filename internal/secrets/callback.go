// Package callback makes addresses that a call is answered at by whoever was asked, and reads them.
//
// The last segment of the path is the token: base64url of a version, tenant, run, call, expiry and key id, and of a
// signature of them all. Whoever has it may answer that call and nothing else, until the expiry; it is a secret, and
// nothing else is needed. The same call has the same token however often it is sent out, as long as the ring's newest
// key stays.
package secrets

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// Path is where tokens are posted to.
const Path = "/v1/callbacks/"

// audience keeps signatures apart from those of anything else that the ring signs.
const audience = "callback"

// version is the first byte of every token.
const version = 1

// Claim is what a token lets its bearer do: answer a call.
type Claim struct {
	Tenant, Run, Call string
	Expires           time.Time // in whole seconds
}

// The errors of Read. Nothing of the claim is in either.
var (
	ErrInvalid = errors.New("there is no such callback")
	ErrExpired = errors.New("the time to answer is over")
)

// fields are what is signed beside the key's id.
func (c Claim) fields() []string {
	return []string{c.Tenant, c.Run, c.Call, string(binary.BigEndian.AppendUint64(nil, uint64(c.Expires.Unix())))}
}

// Token is c signed by the ring's newest key. No member of c is longer than 255 bytes.
func Token(ring *Ring, c Claim) string {
	raw := []byte{version}
	id := ring.Newest()
	for _, field := range append(c.fields(), id) {
		raw = append(append(raw, byte(len(field))), field...)
	}
	signature, _ := ring.Sign(id, audience, c.fields()...) // the newest key is there
	return base64.RawURLEncoding.EncodeToString(append(raw, signature...))
}

// maxToken is longer than any token that Token makes, in characters.
const maxToken = 512

// Read is the claim of a token. Anything but Token's own words is ErrInvalid, however it differs; one that has expired
// is ErrExpired only if it is right.
func Read(ring *Ring, token string, now time.Time) (Claim, error) {
	if len(token) > maxToken {
		return Claim{}, ErrInvalid
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || strings.ContainsAny(token, "\r\n") || len(raw) < 1+Size || raw[0] != version {
		return Claim{}, ErrInvalid
	}
	fields, ok := splitToken(raw[1 : len(raw)-Size])
	if !ok {
		return Claim{}, ErrInvalid
	}
	c := Claim{Tenant: fields[0], Run: fields[1], Call: fields[2], Expires: time.Unix(int64(binary.BigEndian.Uint64([]byte(fields[3]))), 0).UTC()}
	switch {
	case !ring.Verify(raw[len(raw)-Size:], fields[4], audience, fields[:4]...), !agent.ValidTenant(c.Tenant):
		return Claim{}, ErrInvalid
	case !now.Before(c.Expires):
		return Claim{}, ErrExpired
	}
	return c, nil
}

// splitToken reads the five fields before the signature: tenant, run, call, expiry and key id.
func splitToken(raw []byte) (fields [5]string, ok bool) {
	for i := range fields {
		if len(raw) == 0 || len(raw) < 1+int(raw[0]) {
			return fields, false
		}
		fields[i], raw = string(raw[1:1+int(raw[0])]), raw[1+int(raw[0]):]
	}
	return fields, len(raw) == 0 && len(fields[3]) == 8
}

// Addresses are a runtime.Callbacks: those of one deployment. Both fields are required. Safe for concurrent use if they
// are.
type Addresses struct {
	Ring func() (*Ring, error)
	Base func() string // of the API, as https://api.example.com; "" = nobody reaches it, so that there are no addresses
}

// URL implements runtime.Callbacks.
func (a Addresses) URL(tenant, run, call string, expires time.Time) (string, error) {
	base := a.Base()
	if base == "" {
		return "", nil
	}
	ring, err := a.Ring()
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(base, "/") + Path + Token(ring, Claim{Tenant: tenant, Run: run, Call: call, Expires: expires}), nil
}
