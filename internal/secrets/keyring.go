// Package secrets holds the rings of keys that sign what a deployment hands out (Ring), and the addresses at which
// calls are answered, which are signed with one (Token).
package secrets

// This file signs what a deployment hands out and takes back, such as addresses that need no other
// authentication, with several keys: the first one signs, all of them verify, so that a new one can be put in front
// while what the others signed is still about.

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// Key is one key of a ring.
type Key struct {
	ID  string `json:"id"`  // 1 to 32 letters, digits, - and _; never of another key
	Key string `json:"key"` // at least 32 characters, of 128 random bits or more
}

// Ring is one or more keys. Make one with Parse. Safe for concurrent use.
type Ring struct{ keys []Key }

// minKey is the shortest key, in bytes; maxID the longest id.
const (
	minKey = 32
	maxID  = 32
)

// Parse reads a ring: a JSON list of keys, the newest first, or a single one. No key is in an error.
func Parse(text string) (*Ring, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	var keys []Key
	if jsonx.DecodeStrict([]byte(text), &keys) != nil || len(keys) == 0 {
		return nil, errors.New(`want {"id": ..., "key": ...}, or a list of them`)
	}
	seen := map[string]bool{}
	for i, k := range keys {
		switch {
		case !agent.ValidWord(k.ID) || len(k.ID) > maxID:
			return nil, fmt.Errorf("key %d: id: want 1 to %d letters, digits, - and _", i, maxID)
		case seen[k.ID]:
			return nil, fmt.Errorf("key %d: id: want one that no other key has", i)
		case len(k.Key) < minKey:
			return nil, fmt.Errorf("key %d: key: want at least %d characters", i, minKey)
		}
		seen[k.ID] = true
	}
	return &Ring{keys}, nil
}

// Mint returns the text of a ring with one key, which must be random.
func Mint(key string) (string, error) {
	text, err := json.Marshal([]Key{{ID: "1", Key: key}})
	if err == nil {
		_, err = Parse(string(text))
	}
	return string(text), err
}

// Size is the length of a signature, in bytes.
const Size = sha256.Size

// Newest is the id of the key that signs.
func (r *Ring) Newest() string { return r.keys[0].ID }

// Sign is the signature of fields by the key of that id, for an audience: what was signed for one is nothing to
// another. False where there is no such key.
func (r *Ring) Sign(id, audience string, fields ...string) (signature []byte, ok bool) {
	for _, k := range r.keys {
		if k.ID != id {
			continue
		}
		mac := hmac.New(sha256.New, []byte(k.Key))
		// each with its length: no two lists read alike
		for _, field := range append([]string{"countersign 1", audience, id}, fields...) {
			mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
			mac.Write([]byte(field))
		}
		return mac.Sum(nil), true
	}
	return nil, false
}

// Verify reports whether signature is Sign's, in the same time wherever they differ.
func (r *Ring) Verify(signature []byte, id, audience string, fields ...string) bool {
	want, ok := r.Sign(id, audience, fields...)
	return ok && hmac.Equal(want, signature)
}

// Seal encrypts text for an audience with a key that is derived from the newest one: what Sign uses opens nothing, and
// what was sealed for one audience is nothing to another. The result is unpadded base64url.
func (r *Ring) Seal(audience string, text []byte) (string, error) {
	aead, err := r.keys[0].sealing(audience)
	if err != nil {
		return "", err
	}
	id := r.Newest()
	return base64.RawURLEncoding.EncodeToString(aead.Seal(append([]byte{byte(len(id))}, id...), nil, text, nil)), nil
}

// Open returns the text that Seal has sealed for the audience; false for anything else.
func (r *Ring) Open(audience, sealed string) (text []byte, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(raw) == 0 || len(raw) < 1+int(raw[0]) {
		return nil, false
	}
	id, rest := string(raw[1:1+raw[0]]), raw[1+raw[0]:]
	for _, k := range r.keys {
		if k.ID != id {
			continue
		}
		aead, err := k.sealing(audience)
		if err != nil {
			return nil, false
		}
		text, err = aead.Open(nil, nil, rest, nil)
		return text, err == nil
	}
	return nil, false
}

// sealing returns AES-256-GCM with random nonces.
func (k Key) sealing(audience string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(k.Key), nil, "countersign seal 1 "+audience, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// This file makes addresses that a call is answered at by whoever was asked, and reads them.
//
// The last segment of the path is the token: base64url of a version, tenant, run, call, expiry and key id, and of a
// signature of them all. Whoever has it may answer that call and nothing else, until the expiry; it is a secret, and
// nothing else is needed. The same call has the same token however often it is sent out, as long as the ring's newest
// key stays.

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
	c := Claim{Tenant: fields[0], Run: fields[1], Call: fields[2],
		Expires: time.Unix(int64(binary.BigEndian.Uint64([]byte(fields[3]))), 0).UTC()}
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
	return strings.TrimSuffix(base, "/") + Path +
		Token(ring, Claim{Tenant: tenant, Run: run, Call: call, Expires: expires}), nil
}
