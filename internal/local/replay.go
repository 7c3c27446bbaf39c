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
	"github.com/countersign/countersign/internal/web"
)

const replayTries = 20 // of reading a run that moves meanwhile

// Replay folds a run's journal again, from its first entry and with neither model nor tools, and compares what comes
// out with what a load gives, with HEAD, and with the definition and the requests it points at. A broken record is a
// Difference, not an error.
func (m *Machine) Replay(ctx context.Context, tenant, run string) (web.Replay, error) {
	for range replayTries {
		found, moved, err := m.replayOnce(ctx, tenant, run)
		if err != nil || !moved {
			return found, err
		}
	}
	return web.Replay{}, fmt.Errorf("replay run %s: %w", run, runtime.ErrContention)
}

func (m *Machine) replayOnce(ctx context.Context, tenant, run string) (found web.Replay, moved bool, err error) {
	found = web.Replay{Run: run, Differences: []web.Difference{}}
	var compare comparer = func(path string, got, want any) {
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			found.Differences = append(found.Differences, web.Difference{Path: path, Got: g, Want: w})
		}
	}
	head, err := m.Ports.Journal.Head(ctx, tenant, run)
	if err != nil {
		return found, false, err
	}
	loaded, loadErr := m.Ports.Journal.Load(ctx, tenant, run)
	entries, err := m.Ports.Journal.Entries(ctx, tenant, run, 0, 0)
	if err != nil {
		compare("journal", err, "entries that can be read")
		return found, false, nil
	}
	found.Entries = len(entries)
	s, err := m.Ports.Journal.Fold(ctx, tenant, entries)
	if err != nil {
		compare("journal", err, "entries that follow from each other")
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
	if err := compare.states(&loaded.State, &s); err != nil {
		return found, false, err
	}
	compare.head(head, &s)
	m.compareReferences(ctx, compare, &s)
	return found, false, nil
}

// comparer records where got differs from what a journal says.
type comparer func(path string, got, want any)

// states compares two states: what people are shown, and what only the runtime uses.
func (compare comparer) states(got, want *run.AgentState) error {
	g, err := stateMembers(got)
	if err != nil {
		return err
	}
	w, err := stateMembers(want)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		compare("load."+key, string(g[key]), string(w[key]))
	}
	compare("load.definition", got.Definition, want.Definition)
	compare("load.owner", got.Owner, want.Owner)
	compare("load.generation", got.Generation, want.Generation)
	compare("load.waitSeq", got.WaitSeq, want.WaitSeq)
	compare("load.drained", got.Drained, want.Drained)
	compare("load.system", got.System, want.System)
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

func (compare comparer) head(h store.Head, s *run.AgentState) {
	compare("head.agent", h.Agent, s.Agent)
	compare("head.status", h.Status, s.Status)
	compare("head.reason", h.Reason, s.Reason)
	compare("head.owner", h.Owner, s.Owner)
	compare("head.startedAt", h.StartedAt, s.StartedAt)
	if s.Status == run.RunWaiting {
		compare("head.waitSeq", h.WaitSeq, s.WaitSeq)
		compare("head.expires", h.Expires, s.EarliestExpiry().Truncate(time.Millisecond))
	}
}

// compareReferences looks at what the run points at: its pinned definition, and the requests people see.
func (m *Machine) compareReferences(ctx context.Context, compare comparer, s *run.AgentState) {
	if _, err := m.Shown(ctx, s.Tenant, s.Definition); err != nil {
		compare("definition", err, "the definition "+s.Definition)
	}
	request := func(id, about, call string, expires time.Time) (approval.Approval, bool) {
		a, err := approval.Get(ctx, m.Ports.Table, s.Tenant, id)
		if err != nil {
			compare("approvals."+id, err, "a request about "+about+call)
			return a, false
		}
		compare("approvals."+a.ID+".run", a.Run, s.Run)
		compare("approvals."+a.ID+".call", a.Call(), call)
		compare("approvals."+a.ID+".expiresAt", a.ExpiresAt.UTC(), expires.UTC())
		return a, true
	}
	for _, r := range s.OpenRequests() {
		request(r.Approval, "the tools of call ", r.First(), r.Expires)
	}
	for _, c := range s.Waits() {
		if c.Wait.For == run.ForAnswer { // people see it with the run
			continue
		}
		if a, ok := request(c.Wait.Approval, "call ", c.ID, c.Wait.Expires); ok && len(a.Decisions) == 0 {
			compare("approvals."+a.ID+".digest", a.Digest, c.Wait.Digest)
		}
	}
}
