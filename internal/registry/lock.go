package registry

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// LockFile is the name of the file beside agents that pins the tools of their MCP servers. `countersign mcp lock`
// writes it, and people review it like code.
const LockFile = "mcp.lock"

// Lock is the content of a LockFile. A nil Lock has no servers.
type Lock struct {
	Servers []LockedServer `json:"servers"` // sorted by URL and command
}

// LockedServer is an MCP server, known by its URL or its command, with the tools that agents may call.
type LockedServer struct {
	URL     string       `json:"url,omitempty"`
	Command []string     `json:"command,omitempty"`
	Tools   []LockedTool `json:"tools"` // sorted by name
}

// LockedTool is a tool as its server defined it. Digest pins the whole definition; the rest is for those who review it.
type LockedTool struct {
	Name        string          `json:"name"`   // the server's own
	Digest      string          `json:"digest"` // hex SHA-256
	Description string          `json:"description"`
	Arguments   json.RawMessage `json:"arguments"` // JSON Schema
	Annotations agent.MCPHints  `json:"annotations,omitzero"`
}

// lockLimits bound a LockFile.
var lockLimits = jsonx.JSONLimits{Bytes: 64 << 20, Depth: 100}

// ReadLock reads the LockFile at the root of fsys; nil = there is none.
func ReadLock(fsys fs.FS) (*Lock, error) {
	data, err := fs.ReadFile(fsys, LockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", LockFile, err)
	}
	l := &Lock{}
	compact, err := jsonx.CompactJSON(data, lockLimits)
	if err == nil {
		err = jsonx.FieldCheck{}.Value(compact, reflect.TypeOf(l))
	}
	if err == nil {
		err = jsonx.WithoutValue(json.Unmarshal(compact, l))
	}
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w; `countersign mcp lock` writes the file anew", LockFile, err)
	}
	return l, nil
}

func (l *Lock) check() error {
	for i, s := range l.Servers {
		at := fmt.Sprintf("servers[%d]", i)
		server := agent.MCPServer{URL: s.URL, Command: s.Command}
		if (s.URL == "") == (len(s.Command) == 0) {
			return fmt.Errorf("%s: want either url or command", at)
		}
		if l.find(server) != i {
			return fmt.Errorf("%s: the server is there twice", at)
		}
		for j, t := range s.Tools {
			at := fmt.Sprintf("%s.tools[%d]", at, j)
			if sum, err := hex.DecodeString(t.Digest); err != nil || len(sum) != 32 {
				return fmt.Errorf("%s.digest: want 64 hex digits", at)
			}
			if slices.IndexFunc(s.Tools, func(o LockedTool) bool { return o.Name == t.Name }) != j {
				return fmt.Errorf("%s.name: the tool is there twice", at)
			}
		}
	}
	return nil
}

// find returns the index of a server, -1 if it is not locked.
func (l *Lock) find(m agent.MCPServer) int {
	if l == nil {
		return -1
	}
	return slices.IndexFunc(l.Servers, func(s LockedServer) bool {
		return s.URL == m.URL && slices.Equal(s.Command, m.Command)
	})
}

// Apply sets Locked of those MCP servers of d that are in the lock and are not locked yet.
func (l *Lock) Apply(d *agent.Definition) {
	d.MCP = slices.Clone(d.MCP)
	for i, m := range d.MCP {
		at := l.find(m)
		if at < 0 || m.Locked != nil {
			continue
		}
		locked := map[string]string{}
		for _, t := range l.Servers[at].Tools {
			locked[t.Name] = t.Digest
		}
		d.MCP[i].Locked = locked
	}
}

// Add adds what a server lists, as far as an agent wants it. Two agents for which one server defines a tool differently
// are an error: the file could pin only one of them.
func (l *Lock) Add(m agent.MCPServer, listed []agent.ServerTool) error {
	at := l.find(m)
	if at < 0 {
		at = len(l.Servers)
		l.Servers = append(l.Servers, LockedServer{URL: m.URL, Command: m.Command, Tools: []LockedTool{}})
	}
	s := &l.Servers[at]
	for _, t := range listed {
		if !m.Wants(t.Name) || t.Digest == "" {
			continue
		}
		i := slices.IndexFunc(s.Tools, func(o LockedTool) bool { return o.Name == t.Name })
		if i >= 0 && s.Tools[i].Digest != t.Digest {
			return fmt.Errorf("server %s: it defines %s differently for two agents", m.Name, t.Name)
		}
		if i >= 0 {
			continue
		}
		form, err := jsonx.CanonicalJSON(t.Schema)
		if err != nil {
			return fmt.Errorf("server %s: arguments of %s: %w", m.Name, t.Name, err)
		}
		s.Tools = append(s.Tools, LockedTool{t.Name, t.Digest, t.Description, json.RawMessage(form), t.Hints})
	}
	slices.SortFunc(s.Tools, func(a, b LockedTool) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(l.Servers, func(a, b LockedServer) int {
		return slices.Compare(append([]string{a.URL}, a.Command...), append([]string{b.URL}, b.Command...))
	})
	return nil
}

// Encode returns the text of the file. The same servers and tools give the same text.
func (l *Lock) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(l); err != nil {
		return nil, fmt.Errorf("write %s: %w", LockFile, err)
	}
	return b.Bytes(), nil
}
