// Package audit keeps what happened to requests to people: append-only, chained by hashes for each tenant
// (approvals.md, C5).
//
// Items live under PK T#tenant#AUDIT: SK E#%012d, the lines, from 1 without gaps; SK HEAD, the sequence and hash of the
// newest line; SK I#id, the marker of a record that is kept. A line is the canonical JSON of {hash, prev, record, seq,
// tenant}, byte for byte, and its hash is the SHA-256 of the canonical JSON of the others. A line, its marker and HEAD
// are one transaction, so that several writers make one chain, and a record is kept once however often it is handed in.
//
// Most records are derived (Auditor): the facts are durable already, in journals and requests, and no decision waits
// until they are audited. How far a run's facts are, its cursor says: PK T#tenant#RUN#run, SK AUDIT, listed in the
// index under AUDIT while the run is open.
package audit

import (
	"context"
	"time"
)

// Kind is what happened.
type Kind string

// The kinds.
const (
	Requested Kind = "requested"
	Notified  Kind = "notified"
	Viewed    Kind = "viewed"
	Uncovered Kind = "uncovered" // somebody was shown what is masked
	Asked     Kind = "asked"     // for information
	Decided   Kind = "decided"
	Refused   Kind = "refused" // a decision that was not taken
	Escalated Kind = "escalated"
	Expired   Kind = "expired"
	Cancelled Kind = "cancelled" // called off, or overtaken
	Voided    Kind = "voided"
	Consumed  Kind = "consumed" // by the claim of its call
	Executed  Kind = "executed"
	Granted   Kind = "granted" // a standing grant was given
	Revoked   Kind = "revoked"
	Delegated Kind = "delegated" // an approver lets another decide meanwhile

	PolicyChanged Kind = "policy_changed" // what was approved is void since the policy is another one now
)

// Record is one thing that happened. It has no arguments and no note: digests alone.
type Record struct {
	ID       string    `json:"id"` // of the fact: the same one is kept once
	At       time.Time `json:"at"` // zero = when it is recorded
	Kind     Kind      `json:"kind"`
	Approval string    `json:"approval,omitempty"`
	Run      string    `json:"run,omitempty"`
	Call     string    `json:"call,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	Tool     string    `json:"tool,omitempty"`
	Actor    string    `json:"actor,omitempty"`   // a principal; "" = the runtime
	Channel  string    `json:"channel,omitempty"` // approval.Via, or the channel of a message
	Action   string    `json:"action,omitempty"`
	Digest   string    `json:"digest,omitempty"`   // of the action
	ArgsHash string    `json:"argsHash,omitempty"` // of the arguments, by agent.ArgsHash
	Policy   string    `json:"policy,omitempty"`   // version
	Detail   string    `json:"detail,omitempty"`   // of the runtime's making
}

// Recorder takes records. Nothing waits for it but who calls it, and what it cannot keep it says.
type Recorder interface {
	Record(ctx context.Context, tenant string, records ...Record) error
}
