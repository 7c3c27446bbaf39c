package local

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// replayTries bounds how often a run that moves meanwhile is read anew.
const replayTries = 20

// Replay folds a run's journal again, from its first entry and with neither model nor tools, and compares what comes
// out with what a load gives, with HEAD, and with the definition and the requests it points at. A broken record is a
// Difference, not an error.
func (m *Machine) Replay(ctx context.Context, tenant, run string) (api.Replay, error) {
	for range replayTries {
		found, moved, err := m.replayOnce(ctx, tenant, run)
		if err != nil || !moved {
			return found, err
		}
	}
	return api.Replay{}, fmt.Errorf("replay run %s: %w", run, runtime.ErrContention)
}

func (m *Machine) replayOnce(ctx context.Context, tenant, run string) (found api.Replay, moved bool, err error) {
	found = api.Replay{Run: run, Differences: []api.Difference{}}
	head, err := m.Ports.Journal.Head(ctx, tenant, run)
	if err != nil {
		return found, false, err
	}
	loaded, loadErr := m.Ports.Journal.Load(ctx, tenant, run)
	entries, err := m.Ports.Journal.Entries(ctx, tenant, run, 0, 0)
	if err != nil {
		found.Differences = append(found.Differences,
			api.Difference{Path: "journal", Got: err.Error(), Want: "entries that can be read"})
		return found, false, nil
	}
	found.Entries = len(entries)
	s, err := m.Ports.Journal.Fold(ctx, tenant, entries)
	if err != nil {
		found.Differences = append(found.Differences,
			api.Difference{Path: "journal", Got: err.Error(), Want: "entries that follow from each other"})
		return found, false, nil
	}
	if loadErr != nil {
		return found, false, loadErr
	}
	after, err := m.Ports.Journal.Head(ctx, tenant, run)
	if err != nil || loaded.State.Entries != s.Entries || !after.Equal(head) {
		return found, err == nil, err
	}
	found.Status = string(s.Status)
	c := &comparison{found: &found}
	if err := c.compareStates(&loaded.State, &s); err != nil {
		return found, false, err
	}
	c.compareHead(head, &s)
	m.compareReferences(ctx, c, &s)
	return found, false, nil
}

// comparison collects differences from what a journal says.
type comparison struct{ found *api.Replay }

func (c *comparison) compare(path string, got, want any) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		c.found.Differences = append(c.found.Differences, api.Difference{Path: path, Got: g, Want: w})
	}
}

// compareStates compares two states: what people are shown, and what only the runtime uses.
func (c *comparison) compareStates(got, want *run.AgentState) error {
	g, err := stateMembers(got)
	if err != nil {
		return err
	}
	w, err := stateMembers(want)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		c.compare("load."+key, string(g[key]), string(w[key]))
	}
	c.compare("load.definition", got.Definition, want.Definition)
	c.compare("load.owner", got.Owner, want.Owner)
	c.compare("load.generation", got.Generation, want.Generation)
	c.compare("load.waitSeq", got.WaitSeq, want.WaitSeq)
	c.compare("load.drained", got.Drained, want.Drained)
	c.compare("load.system", got.System, want.System)
	return nil
}

func stateMembers(s *run.AgentState) (map[string]json.RawMessage, error) {
	view, err := policy.View(s)
	if err != nil {
		return nil, fmt.Errorf("replay run %s: %w", s.Run, err)
	}
	raw, err := json.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("replay run %s: %w", s.Run, err)
	}
	var m map[string]json.RawMessage
	err = json.Unmarshal(raw, &m)
	return m, err
}

func (c *comparison) compareHead(h store.Head, s *run.AgentState) {
	c.compare("head.agent", h.Agent, s.Agent)
	c.compare("head.status", h.Status, s.Status)
	c.compare("head.reason", h.Reason, s.Reason)
	c.compare("head.owner", h.Owner, s.Owner)
	c.compare("head.startedAt", h.StartedAt, s.StartedAt)
	if s.Status == run.RunWaiting {
		c.compare("head.waitSeq", h.WaitSeq, s.WaitSeq)
		c.compare("head.expires", h.Expires, s.EarliestExpiry().Truncate(time.Millisecond))
	}
}

// compareReferences looks at what the run points at: its pinned definition, and the requests people see.
func (m *Machine) compareReferences(ctx context.Context, c *comparison, s *run.AgentState) {
	if _, err := m.Definitions(ctx, s.Tenant, s.Definition); err != nil {
		c.compare("definition", err.Error(), "the definition "+s.Definition)
	}
	for _, r := range s.OpenRequests() {
		a, err := approval.Get(ctx, m.Ports.Table, s.Tenant, r.Approval)
		if err != nil {
			c.compare("approvals."+r.Approval, err.Error(), "a request about the tools of call "+r.First())
			continue
		}
		c.compare("approvals."+a.ID+".run", a.Run, s.Run)
		c.compare("approvals."+a.ID+".call", a.Call(), r.First())
		c.compare("approvals."+a.ID+".expiresAt", a.ExpiresAt.UTC(), r.Expires.UTC())
	}
	for _, call := range s.Waits() {
		a, err := approval.Get(ctx, m.Ports.Table, s.Tenant, call.Wait.Approval)
		if err != nil {
			c.compare("approvals."+call.Wait.Approval, err.Error(), "a request about call "+call.ID)
			continue
		}
		c.compare("approvals."+a.ID+".run", a.Run, s.Run)
		c.compare("approvals."+a.ID+".call", a.Call(), call.ID)
		c.compare("approvals."+a.ID+".expiresAt", a.ExpiresAt.UTC(), call.Wait.Expires.UTC())
		if len(a.Decisions) == 0 {
			c.compare("approvals."+a.ID+".digest", a.Digest, call.Wait.Digest)
		}
	}
}
