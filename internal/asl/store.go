package asl

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"
)

// Status is where an execution stands.
type Status string

// The statuses of Step Functions.
const (
	Running   Status = "RUNNING"
	Succeeded Status = "SUCCEEDED"
	Failed    Status = "FAILED"
	TimedOut  Status = "TIMED_OUT"
	Aborted   Status = "ABORTED"
)

// Valid tells whether s is one of the statuses.
func (s Status) Valid() bool { return s == Running || s.Terminal() }

// Terminal tells whether an execution with this status is closed.
func (s Status) Terminal() bool {
	return s == Succeeded || s == Failed || s == TimedOut || s == Aborted
}

// Store keeps the records of executions. It must be safe for concurrent use.
type Store interface {
	// Save writes a record in place of any other of the same name. When it returns nil the record is durable.
	Save(ctx context.Context, r Record) error
	// Load returns all records, in any order; of some that cannot be read, the others beside the error.
	Load(ctx context.Context) ([]Record, error)
}

// Record is the durable form of an execution. It marshals to JSON and back.
type Record struct {
	Name        string
	Status      Status
	Input       json.RawMessage
	Output      json.RawMessage `json:",omitempty"` // nil unless it succeeded
	Error       string          `json:",omitempty"`
	Cause       string          `json:",omitempty"`
	StartDate   time.Time
	StopDate    time.Time `json:",omitzero"` // zero while running
	Events      int       // history events so far; see MaxEvents
	Transitions int       // states entered so far, retries included: what AWS bills
	Wait        *Wait     `json:",omitempty"` // the last wait for a token; nil = none yet, or closed
}

// Wait is a Task that waits for its token, or has waited.
type Wait struct {
	State     string          // the Task's name
	Input     json.RawMessage // of State
	Token     string
	Deadline  time.Time
	Retries   []int           // used up so far, for each entry of Retry
	Submitted bool            // the handler has returned
	Output    json.RawMessage `json:",omitempty"` // what was sent to the token; nil = nothing yet
}

// Description is what can be known of an execution.
type Description struct {
	ExecutionARN string
	Record
}

// MemoryStore is a Store that lasts as long as the process. The zero value is empty.
type MemoryStore struct {
	mu      sync.Mutex
	records map[string]Record
}

// Save never fails.
func (m *MemoryStore) Save(_ context.Context, r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records == nil {
		m.records = map[string]Record{}
	}
	m.records[r.Name] = r
	return nil
}

// Load returns the records in order of name. It never fails.
func (m *MemoryStore) Load(context.Context) ([]Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Record, 0, len(m.records))
	for _, name := range slices.Sorted(maps.Keys(m.records)) {
		all = append(all, m.records[name])
	}
	return all, nil
}
