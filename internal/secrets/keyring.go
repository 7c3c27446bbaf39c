// Package keyring signs what a deployment hands out and takes back, such as addresses that need no other
// authentication, with several keys: the first one signs, all of them verify, so that a new one can be put in front
// while what the others signed is still about.
package secrets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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
		case !validID(k.ID):
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

func validID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// Mint is the text of a ring of one key, which is to be random.
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
