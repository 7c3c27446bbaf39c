// Package link makes and reads the addresses of requests' pages, one for each person who is told (approvals.md, A2 to A5).
// An address holds a version, the id of a key, the link's id and a MAC of these. The id is a digest of the link's fields,
// among them a random nonce, so that the MAC covers all of them and is checked without reading anything. The fields are
// stored under PK LINK#id, SK L, and cannot be read off the address. A decision does not delete a link: a second visit
// shows the outcome.
package link

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Path is where the pages are; the token follows.
const Path = "/a/"

// OpenAfterExpiry is how long a link opens after its request has expired. A late visitor sees the outcome and can
// decide nothing.
const OpenAfterExpiry = 7 * 24 * time.Hour

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
	Expires  time.Time `json:"expires"` // the request's expiry and OpenAfterExpiry, in whole seconds
}

// audience separates these signatures from others made with the same keys.
const audience = "approval-page"

// algorithm is the signature algorithm of every token version so far. It is signed as well.
const algorithm = "HMAC-SHA-256"

// digest is the link's id: a digest of the version and of every field with its length (A3). It has 128 bits, so that
// nobody who can write the table can forge another link with the same id.
func (l Link) digest(version byte) string {
	sum := sha256.New()
	for _, field := range []string{
		string([]byte{version}), l.Tenant, l.Approval, l.Run, l.Call, l.Digest, l.To, l.Channel, l.Nonce,
		string(binary.BigEndian.AppendUint64(nil, uint64(l.Expires.Unix()))),
	} {
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		sum.Write([]byte(field))
	}
	return hex.EncodeToString(sum.Sum(nil)[:idSize])
}

// signedFields returns the fields that a token's MAC covers besides the audience and the key's id.
func signedFields(version byte, id string) []string {
	return []string{string([]byte{version}), algorithm, id}
}
