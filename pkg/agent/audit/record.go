// Package audit keeps what happened to requests to people: append-only, chained by hashes for each tenant (approvals.md, C5).
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
	Asked     Kind = "asked" // for information
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
)

// Record is one thing that happened. It has no arguments and no note: digests alone.
type Record struct {
	ID       string    `json:"id"` // of the fact: the same one is kept once
	At       time.Time `json:"at"`
	Kind     Kind      `json:"kind"`
	Approval string    `json:"approval,omitempty"`
	Run      string    `json:"run,omitempty"`
	Call     string    `json:"call,omitempty"`
	Agent    string    `json:"agent,omitempty"`
	Tool     string    `json:"tool,omitempty"`
	Actor    string    `json:"actor,omitempty"`   // a principal; "" = the runtime
	For      string    `json:"for,omitempty"`     // whose duty the actor does
	Channel  string    `json:"channel,omitempty"` // approval.Via, or the channel of a message
	Action   string    `json:"action,omitempty"`
	Digest   string    `json:"digest,omitempty"` // of the action
	Policy   string    `json:"policy,omitempty"` // version
	Detail   string    `json:"detail,omitempty"` // of the runtime's making
}

// Recorder takes records. Nothing waits for it but who calls it, and what it cannot keep it says.
type Recorder interface {
	Record(ctx context.Context, tenant string, records ...Record) error
}
