package link

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// version is the first byte of every token.
const version = 1

// Sizes, in bytes; maxToken in characters.
const (
	idSize   = 16
	macSize  = 32
	maxKeyID = 64
	maxToken = 2 * (1 + 1 + maxKeyID + idSize + macSize)
)

// token is the last segment of an address: unpadded base64url of the version, the length and text of the key's id, the
// link's id and the MAC.
type token struct {
	version byte
	key     string
	id      string // in hexadecimal
	mac     []byte
}

// ValidKeyID reports whether a token can name a key by id.
func ValidKeyID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return id != "" && len(id) <= maxKeyID
}

func (t token) String() string {
	id, _ := hex.DecodeString(t.id) // the id is a digest in hexadecimal
	raw := append([]byte{t.version, byte(len(t.key))}, t.key...)
	return base64.RawURLEncoding.EncodeToString(append(append(raw, id...), t.mac...))
}

// readToken parses a text. No two texts are the same token.
func readToken(text string) (t token, ok bool) {
	if len(text) > maxToken || strings.ContainsAny(text, "\r\n") { // the decoder skips line ends
		return token{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < 2 || raw[0] != version || len(raw) != 2+int(raw[1])+idSize+macSize {
		return token{}, false
	}
	key, rest := raw[2:2+raw[1]], raw[2+raw[1]:]
	t = token{version: raw[0], key: string(key), id: hex.EncodeToString(rest[:idSize]), mac: rest[idSize:]}
	return t, ValidKeyID(t.key)
}
