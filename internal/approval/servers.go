package approval

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The errors of ServerPins beside a table's and blobs'.
var (
	ErrNoServer  = errors.New("the agent has no such server on record")
	ErrNoPending = errors.New("nothing of the server waits to be approved")

	ErrServerMoved = errors.New("the server has changed since") // each *ServerMovedError is one
)

// ServerMovedError says that what was to be approved is not what the server says now.
type ServerMovedError struct {
	What string // the server or its tool
	Got  string // the digest that was to be approved
	Now  string // the one that waits
}

// Is makes e an ErrServerMoved.
func (e *ServerMovedError) Is(target error) bool { return target == ErrServerMoved }

func (e *ServerMovedError) Error() string {
	if e.Now == "" {
		return fmt.Sprintf("%s does not wait to be approved", e.What)
	}
	return fmt.Sprintf("the server has changed %s since you saw it: got digest %.64q, want %s", e.What, e.Got, e.Now)
}

// ServerOperators may approve what servers say of their tools, whoever approves calls of them.
var ServerOperators = []string{"group:operators"}

// Server is what is on record of an MCP server of an agent (A7): the definitions of its tools that people have approved, or trusted when it was
// first listed, and those that wait for that. The record is under PK T#tenant#SERVER#agent, SK the server's name, and names definitions by
// the digest of the blob in which they were seen.
type Server struct {
	Agent    string        `json:"agent"`
	Server   string        `json:"server"` // by its name in the definition
	Version  int64         `json:"version"`
	Since    time.Time     `json:"since"` // when it was first listed
	Run      string        `json:"run"`   // and by which run
	Tools    []PinnedTool  `json:"tools,omitempty"`
	Pending  []PendingTool `json:"pending,omitempty"`
	Approved string        `json:"approved,omitempty"` // PendingDigest of what was last approved as a whole
}

// PinnedTool is a tool as people let agents call it.
type PinnedTool struct {
	Tool   string    `json:"tool"` // the server's own name
	Digest string    `json:"digest"`
	Seen   string    `json:"seen,omitempty"` // the blob of SeenTools that has its definition
	By     string    `json:"by,omitempty"`   // "" = it was trusted when the server was first listed
	At     time.Time `json:"at"`
	Note   string    `json:"note,omitempty"`
	Was    string    `json:"was,omitempty"` // the blob that has the definition it had before
}

// PendingTool is a definition that nobody has approved.
type PendingTool struct {
	Tool   string    `json:"tool"`
	Digest string    `json:"digest"`
	Seen   string    `json:"seen,omitempty"` // "" = the run that met it could not read it
	Since  time.Time `json:"since"`          // when it was first seen like that
	Run    string    `json:"run"`            // and by which run
}

// SeenTool is a tool's definition as a server gave it, less what no person needs. A blob of them is a list.
type SeenTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Hints       agent.MCPHints  `json:"hints,omitzero"`
	Digest      string          `json:"digest"`
}

// PendingDigest is the digest of all that waits to be approved; "" = nothing does.
func (s Server) PendingDigest() string {
	if len(s.Pending) == 0 {
		return ""
	}
	lines := make([]string, len(s.Pending))
	for i, p := range s.Pending {
		lines[i] = p.Tool + " " + p.Digest // a digest has no space
	}
	slices.Sort(lines)
	return store.BlobDigest([]byte(strings.Join(lines, "\n")))
}

// pins are the digests by tool.
func (s Server) pins() policy.Pins {
	pins := policy.Pins{}
	for _, t := range s.Tools {
		pins[t.Tool] = t.Digest
	}
	return pins
}

func serverPartition(tenant, agentName string) string { return "T#" + tenant + "#SERVER#" + agentName }

func serverKey(tenant, agentName, server string) store.Key {
	return store.Key{PK: serverPartition(tenant, agentName), SK: server}
}

func serverIndex(tenant string) string { return "T#" + tenant + "#SERVERS" }

// op writes the record over the version before it, or where there is none.
func (s Server) op(tenant string) (store.Op, error) {
	body, err := run.MarshalVerbatim(s)
	if err != nil {
		return store.Op{}, fmt.Errorf("marshal server %s of %s: %w", s.Server, s.Agent, err)
	}
	before := store.Cond{Op: store.ItemAbsent}
	if s.Version > 1 {
		before = store.Cond{Attr: "version", Op: store.Equal, Value: store.Num(s.Version - 1)}
	}
	return store.Op{Kind: store.Put, If: []store.Cond{before}, Item: store.Item{
		Key: serverKey(tenant, s.Agent, s.Server), Body: body, Index: serverIndex(tenant), IndexSort: s.Agent + "#" + s.Server,
		Attrs: map[string]store.Value{"version": store.Num(s.Version)},
	}}, nil
}

// readServer reads the record of a tenant's server, which must be the one that its key says.
func readServer(tenant string, it store.Item) (Server, error) {
	s, err := decodeServer(tenant, it)
	if err != nil {
		return Server{}, fmt.Errorf("read server %s %s: %w", it.PK, it.SK, err)
	}
	return s, nil
}

func decodeServer(tenant string, it store.Item) (Server, error) {
	var s Server
	if err := run.ReadStored("server", it.Body, &s); err != nil {
		return s, store.Damaged(it.Key, "%w", err)
	}
	version, err := it.Number("version")
	switch {
	case err != nil:
		return s, err
	case it.Key != serverKey(tenant, s.Agent, s.Server):
		return s, store.Damaged(it.Key, "agent and server: want those of the key")
	case s.Version != version || version < 1:
		return s, store.Damaged(it.Key, "version: it is not the one that conditions compare")
	}
	for _, t := range s.Tools {
		if t.Tool == "" || t.Digest == "" {
			return s, store.Damaged(it.Key, "tools: want the name of each and the digest of its definition")
		}
	}
	return s, nil
}

// ServerPins keeps what people have approved of servers. All fields are required. Safe for concurrent use.
type ServerPins struct {
	Table store.Table
	Blobs store.Blobs
	Clock clock.Clock
}

// Get reads the record of a server consistently; ErrNoServer where there is none.
func (v *ServerPins) Get(ctx context.Context, tenant, agentName, server string) (Server, error) {
	it, found, err := v.Table.Get(ctx, serverKey(tenant, agentName, server))
	if err != nil {
		return Server{}, fmt.Errorf("read server %s of %s: %w", server, agentName, err)
	}
	if !found {
		return Server{}, fmt.Errorf("server %q of %q: %w", server, agentName, ErrNoServer)
	}
	return readServer(tenant, it)
}

// Sighting is what a run has seen of a server.
type Sighting struct {
	Tenant, Agent, Run string
	Server             string
	Tools              []agent.ServerTool // all that it lists
}

// Saw takes in what a server lists and gives what of it is approved. The first time for an agent, all of it is; later, what differs waits to
// be approved, and what the server does not say any more waits no longer. Nothing is written where nothing is new.
func (v *ServerPins) Saw(ctx context.Context, seen Sighting) (policy.Pins, error) {
	var after Server
	err := v.change(ctx, seen.Tenant, seen.Agent, seen.Server, func(s *Server) (bool, error) {
		changed, err := v.sight(ctx, s, seen)
		after = *s
		return changed, err
	})
	return after.pins(), err
}

// Met takes in that a run met a tool whose definition is another one now, and could not be read: only its digest is known.
func (v *ServerPins) Met(ctx context.Context, seen Sighting, tool, digest string) error {
	return v.change(ctx, seen.Tenant, seen.Agent, seen.Server, func(s *Server) (bool, error) {
		at := slices.IndexFunc(s.Pending, func(p PendingTool) bool { return p.Tool == tool })
		if s.Version == 0 || s.pins()[tool] == digest || at >= 0 && s.Pending[at].Digest == digest {
			return false, nil
		}
		s.Pending = append(without(s.Pending, tool), PendingTool{Tool: tool, Digest: digest, Since: v.now(), Run: seen.Run})
		return true, nil
	})
}

func without(pending []PendingTool, tool string) []PendingTool {
	return slices.DeleteFunc(slices.Clone(pending), func(p PendingTool) bool { return p.Tool == tool })
}

func (v *ServerPins) now() time.Time { return v.Clock.Now().UTC().Truncate(time.Millisecond) }

// change rewrites a record until nobody else does meanwhile. The zero Version is a record that is not there.
func (v *ServerPins) change(ctx context.Context, tenant, agentName, server string, edit func(s *Server) (bool, error)) error {
	for range maxRaces {
		s, err := v.Get(ctx, tenant, agentName, server)
		if err != nil && !errors.Is(err, ErrNoServer) {
			return err
		}
		changed, err := edit(&s)
		if err != nil || !changed {
			return err
		}
		s.Version++
		op, err := s.op(tenant)
		if err != nil {
			return err
		}
		if err = v.Table.Write(ctx, op); err == nil {
			return nil
		}
		var raced *store.ConditionError
		if !errors.As(err, &raced) {
			return fmt.Errorf("write server %s of %s: %w", server, agentName, err)
		}
	}
	return fmt.Errorf("write server %s of %s: %w", server, agentName, store.ErrConflict)
}

// sight lays what was seen over a record.
func (v *ServerPins) sight(ctx context.Context, s *Server, seen Sighting) (changed bool, err error) {
	first := s.Version == 0
	if first {
		*s = Server{Agent: seen.Agent, Server: seen.Server, Since: v.now(), Run: seen.Run}
	}
	pinned, waits := s.pins(), map[string]PendingTool{}
	for _, p := range s.Pending {
		waits[p.Tool] = p
	}
	var fresh []agent.ServerTool
	pending := []PendingTool{}
	for _, t := range seen.Tools {
		p := waits[t.Name]
		switch {
		case t.Digest == "": // nobody could say what it is that is approved
		case first || pinned[t.Name] != t.Digest && (p.Digest != t.Digest || p.Seen == ""):
			fresh = append(fresh, t)
		case pinned[t.Name] != t.Digest:
			pending = append(pending, p)
		}
	}
	if len(fresh) == 0 && len(pending) == len(s.Pending) && !first {
		return false, nil
	}
	blob := ""
	if len(fresh) > 0 {
		if blob, err = v.keep(ctx, seen.Tenant, fresh); err != nil {
			return false, err
		}
	}
	for _, t := range fresh {
		if first {
			s.Tools = append(s.Tools, PinnedTool{Tool: t.Name, Digest: t.Digest, Seen: blob, At: s.Since})
			continue
		}
		pending = append(pending, PendingTool{Tool: t.Name, Digest: t.Digest, Seen: blob, Since: v.now(), Run: seen.Run})
	}
	slices.SortFunc(s.Tools, func(a, b PinnedTool) int { return cmp.Compare(a.Tool, b.Tool) })
	slices.SortFunc(pending, func(a, b PendingTool) int { return cmp.Compare(a.Tool, b.Tool) })
	s.Pending = pending
	return true, nil
}

// keep stores definitions, before the record that names their blob.
func (v *ServerPins) keep(ctx context.Context, tenant string, tools []agent.ServerTool) (string, error) {
	list := make([]SeenTool, len(tools))
	for i, t := range tools {
		list[i] = SeenTool{t.Name, t.Description, t.Schema, t.Hints, t.Digest}
	}
	data, err := run.MarshalVerbatim(list)
	if err != nil {
		return "", fmt.Errorf("write definitions of tools: %w", err)
	}
	digest := store.BlobDigest(data)
	if err := v.Blobs.Put(ctx, tenant, digest, data); err != nil {
		return "", fmt.Errorf("store definitions of tools: %w", err)
	}
	return digest, nil
}

// Definition reads a tool's definition from the blob in which it was seen. The zero SeenTool where none was.
func (v *ServerPins) Definition(ctx context.Context, tenant, blob, tool string) (SeenTool, error) {
	if blob == "" {
		return SeenTool{}, nil
	}
	data, err := v.Blobs.Get(ctx, tenant, blob)
	if err != nil {
		return SeenTool{}, fmt.Errorf("read definition of tool %s: %w", tool, err)
	}
	var list []SeenTool
	if err := json.Unmarshal(data, &list); err != nil {
		return SeenTool{}, fmt.Errorf("read definition of tool %s: %w", tool, err)
	}
	i := slices.IndexFunc(list, func(t SeenTool) bool { return t.Name == tool })
	if i < 0 {
		return SeenTool{}, nil
	}
	return list[i], nil
}

// ServerApproval is one person's word that what a server says of its tools is as it should be. By comes from what authenticated the person.
type ServerApproval struct {
	Tenant, Agent, Server string
	Tool                  string // the server's own name; "" = all that waits
	Digest                string // of the tool as it waits; without one, PendingDigest
	Note                  string
	By                    policy.Principal
}

// Approve lets runs that start from now on call a server's tools as they are: those that were seen. The same approval again is no error.
//
// Errors: ErrForbidden; ErrNoServer; ErrNoPending; *ServerMovedError where something else waits; store.ErrConflict where others keep writing.
// Another error is uncertain, and it may be repeated.
func (v *ServerPins) Approve(ctx context.Context, a ServerApproval) (Server, error) {
	var after Server
	if !policy.MayDecide(ServerOperators, a.By) {
		return after, fmt.Errorf("approve tools of server %s as %s: %w", a.Server, a.By.ID, ErrForbidden)
	}
	err := v.change(ctx, a.Tenant, a.Agent, a.Server, func(s *Server) (bool, error) {
		changed, err := s.approve(a, v.now())
		after = *s
		return changed, err
	})
	return after, err
}

func (s *Server) approve(a ServerApproval, now time.Time) (bool, error) {
	what := "the tool " + a.Tool
	chosen := slices.Clone(s.Pending)
	digest := s.PendingDigest()
	if a.Tool == "" {
		what = "its tools"
	} else {
		chosen = slices.DeleteFunc(chosen, func(p PendingTool) bool { return p.Tool != a.Tool })
		digest = ""
		if len(chosen) == 1 {
			digest = chosen[0].Digest
		}
	}
	switch {
	case s.Version == 0:
		return false, fmt.Errorf("server %q of %q: %w", a.Server, a.Agent, ErrNoServer)
	case len(chosen) == 0 && a.Digest != "" && (a.Tool == "" && s.Approved == a.Digest || a.Tool != "" && s.pins()[a.Tool] == a.Digest):
		return false, nil // it was approved before
	case len(chosen) == 0:
		return false, fmt.Errorf("approve %s of server %s: %w", what, a.Server, ErrNoPending)
	case a.Digest != digest:
		return false, &ServerMovedError{What: what, Got: a.Digest, Now: digest}
	}
	if a.Tool == "" {
		s.Approved = a.Digest
	}
	for _, p := range chosen {
		s.pin(p, a, now)
	}
	return true, nil
}

// pin makes a definition that waited the one that is approved.
func (s *Server) pin(p PendingTool, a ServerApproval, now time.Time) {
	s.Pending = without(s.Pending, p.Tool)
	t := PinnedTool{Tool: p.Tool, Digest: p.Digest, Seen: p.Seen, By: a.By.ID, At: now, Note: a.Note}
	s.Tools = slices.Clone(s.Tools)
	at, known := slices.BinarySearchFunc(s.Tools, p.Tool, func(have PinnedTool, name string) int { return cmp.Compare(have.Tool, name) })
	if known {
		t.Was = s.Tools[at].Seen
		s.Tools[at] = t
		return
	}
	s.Tools = slices.Insert(s.Tools, at, t)
}

// Servers narrows a list of servers. The zero value lists a page of all.
type Servers struct {
	Agent  string // "" = of every agent
	Limit  int    // 0 = 50
	Cursor string // where a former page ended
}

// List pages through the servers on record, by agent and name; that of all agents may be late. No gate reads it.
func (v *ServerPins) List(ctx context.Context, tenant string, q Servers) (list []Server, next string, err error) {
	r := store.Range{PK: serverIndex(tenant), Index: true, Limit: cmp.Or(q.Limit, 50), Cursor: q.Cursor}
	if q.Agent != "" {
		r.PK, r.Index = serverPartition(tenant, q.Agent), false
	}
	list, next, err = store.ReadPage(ctx, v.Table, r, func(it store.Item) (Server, error) { return readServer(tenant, it) })
	if err != nil {
		err = fmt.Errorf("list servers: %w", err)
	}
	return list, next, err
}
