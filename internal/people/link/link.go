// Package link makes the addresses of requests' pages, one for each person who is told, and reads them (approvals.md,
// A2 to A5). An address holds a version, the id of a key, the link's id and a MAC of these. The id is a digest of what
// the link stands for, a random nonce among it, so that the MAC covers all of that and is checked without reading
// anything. What the link stands for is kept in the table, under PK LINK#id, SK L: nothing of it can be read off the
// address. Links are never deleted to decide: a second visit shows the outcome.
package link

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Path is where the pages are; the token follows.
const Path = "/a/"

// OpenAfterExpiry is how long a link can be opened once its request has expired: whoever comes too late is shown what became of it. Nothing can be decided then.
const OpenAfterExpiry = 7 * 24 * time.Hour

// Link is what a link stands for: one person's view of one request, and the right to decide it as that person.
type Link struct {
	ID       string    `json:"id"` // a digest of the other fields; all that the address says beside its MAC and the key's id
	Tenant   string    `json:"tenant"`
	Approval string    `json:"approval"`
	Run      string    `json:"run"`
	Call     string    `json:"call"`
	Digest   string    `json:"digest"`  // of the action as it was asked
	To       string    `json:"to"`      // a person's id
	Channel  string    `json:"channel"` // that it was sent by
	Nonce    string    `json:"nonce"`   // random, and in no address
	Expires  time.Time `json:"expires"` // in whole seconds: the request's expiry and Afterlife
}

// audience keeps signatures apart from those of anything else that the same keys sign.
const audience = "approval-page"

// algorithm is what every version of a token signs with so far. It is signed, too.
const algorithm = "HMAC-SHA-256"

// digest is the link's id: of the version and of every field, each with its length (A3). It has 128 bits: whoever could
// change the table would need another link of the very same digest.
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
