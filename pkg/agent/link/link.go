// Package link makes the addresses of requests' pages, one for each person who is told, and reads them (approvals.md, A2 to A4). A link is an opaque
// id and a MAC. What it stands for is kept in the table, under PK LINK#id: nothing of it can be read off the address.
package link

import "time"

// Path is where the pages are; the token follows.
const Path = "/a/"

// Link is what a link stands for: one person's view of one request, and the right to decide it as that person.
type Link struct {
	ID       string    `json:"id"` // random; all that the address says beside its MAC and the key's id
	Tenant   string    `json:"tenant"`
	Approval string    `json:"approval"`
	Run      string    `json:"run"`
	Call     string    `json:"call"`
	Digest   string    `json:"digest"`  // of the action as it was asked
	To       string    `json:"to"`      // a person's id
	Channel  string    `json:"channel"` // that it was sent by
	Nonce    string    `json:"nonce"`   // random
	Expires  time.Time `json:"expires"` // in whole seconds
}
