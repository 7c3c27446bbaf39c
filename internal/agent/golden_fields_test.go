package agent

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStoredJournalsHaveEveryField: a key of the stored form that is in no golden file could change its meaning, and nobody would notice
// (invariant 9). Whoever adds one adds a golden file.
func TestStoredJournalsHaveEveryField(t *testing.T) {
	have := map[string]bool{}
	for _, line := range everyGoldenLine(t) {
		var e any
		require.NoError(t, json.Unmarshal(line, &e))
		keysIn(have, "", e)
	}
	want := map[string]bool{}
	keysOf(want, "", reflect.TypeFor[entryForm]())
	keysOf(want, ".p", reflect.TypeFor[snapshotForm]())
	for name := range eventTypes {
		e, err := UnmarshalEvent(json.RawMessage(`{"` + name + `":{}}`))
		require.NoError(t, err)
		want[".e."+name] = true
		keysOf(want, ".e."+name, reflect.TypeOf(e))
	}
	for path := range want {
		elsewhere := path == ".p.msgs.f.Run" || path == ".p.queued.Run" || path == ".p.plan.steps.from.Run" || // no snapshot has bodies in another run's journal
			strings.HasSuffix(path, ".from.unknown.claim") || // and a claimant of the other run says nothing here
			slices.Contains([]string{".e.input_received.starts", ".e.run_started.heard", ".p.start.heard", ".p.heard", ".p.again"}, path) ||
			recounted(path) || // see api's TestAForgedRequestLetsNothingRun
			slices.Contains([]string{".p.live.Grant.Asked", ".p.live.Grant.Heard", ".p.live.Wait.Heard"}, path) || // see TestRequestersOutliveASnapshot
			path == ".p.live.Undoes" || // nor of a run that takes a call back, which begins from another and infers nothing
			slices.Contains([]string{".e.undo_ordered.call.repeats", ".e.undo_ordered.call.breaks", ".e.undo_ordered.call.unoffered", ".e.undo_ordered.call.repaired"}, path) || // no model has made that call
			path == ".e.step_routed.call.repeats" || path == ".e.step_routed.call.breaks" // a step's call is neither a duplicate nor the run's end
		require.Equal(t, !elsewhere, have[path], "%s in a golden file", path)
	}
}

// The journals with every key that the others lack, snapshots among them; the second is of a fork of the first.
const (
	goldenAll      = "testdata/journal-v1-fields"
	goldenAllFork  = "testdata/journal-v1-fields-fork"
	goldenRefused  = "testdata/journal-v1-refused"  // with a snapshot while the newest reply is refused
	goldenState    = "testdata/journal-v1-state"    // whose tools share a state, with snapshots in a sequential and in a parallel round
	goldenRounds   = "testdata/journal-v1-rounds"   // with a snapshot while calls of two rounds are open
	goldenContext  = "testdata/journal-v1-context"  // with a context that was built
	goldenTickets  = "testdata/journal-v1-tickets"  // with one while tools ask, are answered, and a decision is kept
	goldenServices = "testdata/journal-v1-services" // with a snapshot while a service is asked
	goldenAsked    = "testdata/journal-v1-asked"    // the same, by a version that notes when
	goldenLimits   = "testdata/journal-v1-limits"   // with a snapshot while a reply in pieces is to stop the run
	goldenHooked   = "testdata/journal-v1-plugins"  // with everything that plugins decide
	goldenGate     = "testdata/journal-v1-gate"     // with a snapshot while a plugin has somebody asked behind the tool's own question
	goldenHidden   = "testdata/journal-v1-hidden"   // with a snapshot between what plugins hide and the reply that was not offered it
	goldenGuards   = "testdata/journal-v1-guards"   // with a snapshot while a reply is sent back and a duplicate stands before it
	goldenBreaks   = "testdata/journal-v1-breaks"   // with one while the breaker counts and a call that ends the run is open
	goldenResults  = "testdata/journal-v1-results"  // with a snapshot of results that were cut, pages of them, and tools that asked late
	goldenPermits  = "testdata/journal-v1-permits"  // with a snapshot of everything that is known of tools' permissions
	goldenStanding = "testdata/journal-v1-standing" // with a snapshot of a standing grant and a call that is claimed under it
	goldenListed   = "testdata/journal-v1-listed"   // with one of a run that has lost one of its servers' tools
	goldenMemo     = "testdata/journal-v1-memo"     // with a snapshot while tools want back what they asked with, one of them behind a plugin's question
	goldenPatterns = "testdata/journal-v1-patterns" // with one of a counted standing grant of a pattern and a call that is claimed under it
	goldenChecked  = "testdata/journal-v1-checked"  // with a snapshot while people are shown what a call depends on
	goldenRestored = "testdata/journal-v1-restored" // with one of a run in quarantine after a restore
	goldenEvicted  = "testdata/journal-v1-evicted"  // with snapshots behind an eviction and while the window is full
	goldenOwned    = "testdata/journal-v1-owned"    // with one that says since when its execution owns the run
)

// TestStoredSnapshotsStillRestore: whoever begins at a stored snapshot, of either form, ends up where the whole journal leads.
func TestStoredSnapshotsStillRestore(t *testing.T) {
	if *update {
		addGolden(t, goldenAll, AgentState{}, goldenFields())
	}
	parent := unmarshalled(t, linesOf(t, goldenAll+".jsonl"))
	past := fold(t, AgentState{}, parent[:4])
	if *update {
		addGolden(t, goldenAllFork, Seed(past), goldenFieldsFork())
		addGolden(t, goldenRefused, AgentState{}, goldenRefusedRun())
		addGolden(t, goldenState, AgentState{}, goldenStateRun())
		addGolden(t, goldenRounds, AgentState{}, goldenOpenRounds())
		addGolden(t, goldenContext, AgentState{}, goldenContextRun())
		addGolden(t, goldenTickets, AgentState{}, goldenTicketsRun())
		addGolden(t, goldenServices, AgentState{}, goldenServicesRun())
		addGolden(t, goldenAsked, AgentState{}, goldenServicesRun())
		addGolden(t, goldenLimits, AgentState{}, goldenLimitsRun())
		addGolden(t, goldenHooked, AgentState{}, goldenHookedRun())
		addGolden(t, goldenHidden, AgentState{}, goldenHiddenRun())
		addGolden(t, goldenPermits, AgentState{}, goldenPermitsRun())
		addGolden(t, goldenGate, AgentState{}, goldenGateRun())
		addGolden(t, goldenMemo, AgentState{}, goldenMemoRun())
		addGolden(t, goldenPatterns, AgentState{}, goldenPatternsRun())
		addGolden(t, goldenChecked, AgentState{}, goldenPreconditionRun())
		addGolden(t, goldenQuorum, AgentState{}, goldenQuorumRun())
		addGolden(t, goldenStanding, AgentState{}, goldenStandingRun())
		addGolden(t, goldenGuards, AgentState{}, goldenGuardsRun())
		addGolden(t, goldenBreaks, AgentState{}, goldenBreaksRun())
		addGolden(t, goldenEvicted, AgentState{}, goldenEvictedRun())
		addGolden(t, goldenListed, AgentState{}, goldenListedRun())
		addGolden(t, goldenRestored, AgentState{}, goldenRestoredRun())
		addGolden(t, goldenOwned, AgentState{}, goldenOwnedRun())
		addGolden(t, goldenResults, AgentState{}, goldenResultsRun())
		addGolden(t, goldenChild, AgentState{}, goldenChildRun())
		addGolden(t, goldenPlanLeft, AgentState{}, goldenPlanLeftRun())
		addGolden(t, goldenPlanDone, AgentState{}, goldenPlanDoneRun())
	}
	for name, c := range map[string]struct {
		seed AgentState
		form int
	}{
		goldenAll: {AgentState{}, snapshotVersion}, goldenAllFork: {Seed(past), snapshotVersionOrigin}, goldenRefused: {AgentState{}, snapshotVersionRefused},
		goldenState: {AgentState{}, snapshotVersionTools}, goldenRounds: {AgentState{}, snapshotVersionTools}, goldenContext: {AgentState{}, snapshotVersionTools},
		goldenTickets: {AgentState{}, snapshotVersionTools}, goldenServices: {AgentState{}, snapshotVersionTools}, goldenAsked: {AgentState{}, snapshotVersionTools},
		goldenLimits: {AgentState{}, snapshotVersionTools}, goldenHooked: {AgentState{}, snapshotVersionTools},
		goldenPermits: {AgentState{}, snapshotVersionTools}, goldenGate: {AgentState{}, snapshotVersionTools},
		goldenMemo: {AgentState{}, snapshotVersionTools},

		goldenPatterns: {AgentState{}, snapshotVersionTools},

		goldenChecked: {AgentState{}, snapshotVersionTools},
		goldenHidden:  {AgentState{}, snapshotVersionTools}, goldenGuards: {AgentState{}, snapshotVersionTools},
		goldenQuorum:   {AgentState{}, snapshotVersion},
		goldenStanding: {AgentState{}, snapshotVersionTools}, goldenBreaks: {AgentState{}, snapshotVersionTools},
		goldenListed: {AgentState{}, snapshotVersionTools}, goldenRestored: {AgentState{}, snapshotVersionRestored},
		goldenEvicted: {AgentState{}, snapshotVersionTools}, goldenResults: {AgentState{}, snapshotVersionTools},
		goldenChild:    {AgentState{}, snapshotVersionTools},
		goldenOwned:    {AgentState{}, snapshotVersion},
		goldenPlanLeft: {AgentState{}, snapshotVersionTools}, goldenPlanDone: {AgentState{}, snapshotVersionTools},
	} {
		entries := unmarshalled(t, linesOf(t, name+".jsonl"))
		whole := fold(t, c.seed, entries)
		requireGoldenState(t, name, whole)
		at := slices.IndexFunc(entries, func(e Entry) bool { return e.Snapshot != nil })
		require.Positive(t, at, name)
		require.Contains(t, string(entries[at].Snapshot), fmt.Sprintf(`{"v":%d,`, c.form))
		for end := at + 1; end <= len(entries); end++ {
			want := fold(t, c.seed, entries[:end])
			part, ok, err := Restore(entries[want.ReadFrom():end])
			require.NoError(t, err)
			require.True(t, ok, "%s at %d", name, end-1)
			if name != goldenEvicted && part.Counted == (Counted{}) { // whoever wrote it did not know of that
				want.Counted = Counted{}
			}
			if name != goldenEvicted { // nor of that
				want.Named, part.Named = nil, nil
			}
			if name != goldenOwned { // nor of that
				want.ownedAt = part.ownedAt
			}
			if name != goldenAsked { // nor of that
				want.Live = unasked(want.Live)
			}
			want.Heard, part.Heard = nil, nil // nor did any of them
			want.Live, part.Live = uncounted(want.Live), uncounted(part.Live)
			want.Permissions.Asked = slices.Clone(want.Permissions.Asked)
			for i := range want.Permissions.Asked {
				want.Permissions.Asked[i].Heard = 0
			}
			require.Equal(t, shared(t, want), shared(t, part), "%s at %d", name, end-1)
			require.Equal(t, want.From, part.From, name)
		}
	}
}

// recounted reports whether a key is of what claims count again.
func recounted(path string) bool {
	keys := []string{"voices", "Voices", "Again", "asked", "heard", "run", "requesters", "edited"}
	for _, of := range []string{
		".e.decided", ".e.answered", ".p.live.Grant", ".p.permits.tools", ".p.permits.asked",
		".e.permission_checked.standing", ".p.permits.checked.standing",
	} {
		key, ok := strings.CutPrefix(path, of+".")
		key, _, _ = strings.Cut(key, ".")
		if ok && slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// uncounted are calls without what a claim counts approvals by.
func uncounted(calls []Call) []Call {
	calls = slices.Clone(calls)
	for i, c := range calls {
		if c.Wait != nil {
			w := *c.Wait
			w.Heard = 0
			calls[i].Wait = &w
		}
		if c.Grant != nil {
			g := *c.Grant
			g.Voices, g.Asked, g.Heard = nil, time.Time{}, 0
			calls[i].Grant = &g
		}
	}
	return calls
}

// unasked are calls without the times at which they were asked.
func unasked(calls []Call) []Call {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].AskedAt = time.Time{}
	}
	return calls
}

// goldenFields is a run with a trace; media of every origin; edits, answers and late results; an entry that evicts,
// whose snapshot has calls in every state; and an end in error.
func goldenFields() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	in := json.RawMessage(`{"amount":100.10}`)
	media := []Media{{Name: "scan", MediaType: "application/pdf", Blob: strings.Repeat("ab", 32)}, {Name: "p", MediaType: "image/png", Data: "iVBORw=="}}
	trace := &Trace{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "vendor=1", Parent: "00f067aa0ba902b7"}
	pay := func(n int64, ids ...string) Replied {
		r := Replied{
			Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3, CacheRead: 2, CacheWrite: 1}, Units: 12, Text: "I pay.", System: "s1", Reasoning: []RepliedReasoning{
				{Text: "hm", Signature: "s", Provider: "bedrock", Model: "m"}, {Redacted: []byte{0, 255}, Provider: "bedrock", Model: "m", AfterText: 6, AfterCalls: 1},
			},
		}
		for _, id := range ids {
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: "payments_send", Tool: "payments.send", Effect: EffectNonIdempotent, Input: in})
		}
		return r
	}
	edit := func(slot int64, call, approval string) Decided {
		return Decided{Slot: slot, Call: call, Approval: approval, Action: ActionApprove, By: "user:ana", Note: "less", Args: json.RawMessage(`{"amount":40}`), Digest: "x" + call}
	}
	suspend := func(call, approval string) CallSuspended {
		return CallSuspended{Call: call, Approval: approval, Digest: "d" + call, Expires: later}
	}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r5", Agent: "billing", Version: "3", Definition: "d1", HooksVersion: "h1", Owner: "r5-0", BodyDigest: "b1", Subject: "customer 5", AccessControl: "team:a",
			Input: json.RawMessage(`{"customer":5}`), MaxInteractions: 9, Messages: []UserBlock{{Text{"Settle this."}}, {media[0]}, {media[1]}}, Trace: trace,
		}},
		{pay(1, "c1", "c2"), suspend("c1", "a1"), suspend("c2", "a2"), Parked{Expires: later}},
		{Resumed{}, edit(1, "c1", "a1"), Decided{Slot: 2, Call: "c2", Approval: "a2", Action: ActionDeny, By: "user:ana", Text: "Denied."}, CallClaimed{Call: "c1"}},
		{CallUnknown{Call: "c1", Approval: "a3", Expires: later}, Parked{Expires: later}},
		{
			Resumed{}, HandedOver{Owner: "r5-1"},
			Answered{Slot: 3, Call: "c1", Approval: "a3", Content: "half of it", IsError: true, Media: media, By: "user:ana"},
		},
		{pay(2, "c3", "c4"), CallClaimed{Call: "c3"}, CallClaimed{Call: "c4"}},
		{
			LateResult{Slot: 4, Call: "c3", Writer: "w0", Content: "paid", IsError: true, Media: media},
			CallUnknown{Call: "c4", Approval: "a4", Expires: later}, Answered{Slot: 5, Call: "c4", Approval: "a4", Blob: "b7", By: "user:ana"},
		},
		{
			Evicted{Total: 4, Summary: "Somebody asked."}, pay(3, "c3-0", "c3-1", "c3-2", "c3-3"), suspend("c3-0", "a5"), suspend("c3-1", "a6"), edit(6, "c3-1", "a6"), CallClaimed{Call: "c3-1"}, CallClaimed{Call: "c3-2"},
			CallFinished{Call: "c3-2", IsError: true, Reason: WhyToolError, Content: "no", Blob: "b8", Media: media}, CallClaimed{Call: "c3-3"}, CallUnknown{Call: "c3-3", Approval: "a7", Expires: later},
			InputReceived{Slot: 7, ID: "m1", By: "user:ana", Blocks: []UserBlock{{Text{"And?"}}, {media[0]}}}, Parked{Expires: later},
		},
		{
			Resumed{}, LateResult{Slot: 8, Call: "c3-1", Writer: "w1", Blob: "b9"}, Decided{Slot: 9, Call: "c3-0", Approval: "a5", Action: ActionCancel, By: "user:ana", Text: "Called off."},
			CallCancelled{Call: "c3-3", Reason: WhyOutcomeUnknown, Content: TextOutcomeExpired()},
		},
		{Finished{Reason: ReasonError, Error: &RunError{Code: CodeModelFailed, Message: "model m: server: 500"}, Requests: 3}},
	}
}

// goldenFieldsFork branches off where nobody knows what became of an edited call, and goes on until nothing of its parent is alive.
func goldenFieldsFork() [][]Event {
	unknown := CallUnknown{Call: "c1", Approval: "a8", Expires: worldEpoch.Add(OutcomeExpiry)}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r6", Agent: "billing", Version: "3", Definition: "d1", Owner: "r6-0", BodyDigest: "b2", MaxInteractions: 5,
			From: &Origin{Kind: OriginFork, Run: "r5", Seq: 3, At: 1, Unknown: []CallUnknown{unknown}},
		}},
		{Answered{Slot: 1, Call: "c1", Approval: "a8", Content: "It was.", By: "user:ana"}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Good.", Reasoning: []RepliedReasoning{{Text: "Is it?", Provider: "openai", Model: "m", Field: "reasoning"}}}, InputReceived{Slot: 2, ID: "m", Blocks: []UserBlock{{Text{"Go on."}}}}},
		{Evicted{Total: 10, Summary: "A payment."}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}},
	}
}

// goldenRefusedRun evicts in the entry whose reply does not fit, and is corrected.
func goldenRefusedRun() [][]Event {
	reply := func(n int64, text string, c *Correction) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: text, Correction: c}
	}
	refused := func(text string) *Correction {
		return &Correction{Lifecycle: LifecycleOutputError, Text: text, Ephemeral: true}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r7", Agent: "a", Definition: "d1", Owner: "r7-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Add up."}}}}},
		{reply(1, "ten", refused("No JSON."))},
		{Evicted{Total: 1, Summary: "Somebody asked."}, reply(2, "11", refused("Still none."))},
		{reply(3, `{"total":10}`, nil), Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`{"total":10}`)}},
	}
}

// goldenStateRun shares a state: its calls change it one after the other, then side by side, and an entry evicts in the middle of each
// round.
func goldenStateRun() [][]Event {
	reply := func(n int64, sequential bool, ids ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Sequential: sequential}
		for _, id := range ids {
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: "note", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)})
		}
		return r
	}
	patch := func(path, value string) Patch { return Patch{Path: path, Value: json.RawMessage(value)} }
	claim := func(call string) CallClaimed { return CallClaimed{Call: call} }
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Note it."}}}}},
		{reply(1, true, "c1"), claim("c1"), CallFinished{Call: "c1", Content: "ok", Patch: []Patch{patch("/a", `{"b":100.10,"c":"<&>"}`), patch("/old", "null")}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, reply(2, true, "c2", "c3"),
			claim("c2"), CallFinished{Call: "c2", Content: "ok", Patch: []Patch{patch("/log/-", `{"n":1}`), {Path: "/old"}}},
		},
		{claim("c3"), CallFinished{Call: "c3", Content: "ok", Patch: []Patch{patch("/log/-", `2`), patch("/a/b", `[1]`)}}},
		{
			Evicted{Total: 3, Summary: "Somebody asked for notes."}, reply(3, false, "c4", "c5", "c6"), claim("c4"), claim("c5"), claim("c6"),
			CallFinished{Call: "c4", Content: "ok", Patch: []Patch{patch("/a/b/0", `4`)}},
		},
		{LateResult{Slot: 1, Call: "c5", Writer: "w0", Content: "ok", Patch: []Patch{patch("/five/x", `true`)}}},
		{Answered{Call: "c6", Content: "ok", By: "reconcile", Patch: []Patch{patch("/a/c", `null`), {Path: "/never"}}}},
		{Replied{Inference: 4, Model: "m", Requests: 1, Text: "Noted."}},
	}
}

// goldenOpenRounds asks the model while calls of two rounds wait, evicts what stands before the older one, and replays them together.
func goldenOpenRounds() [][]Event {
	reply := func(n int64, text string, ids ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: text}
		for _, id := range ids {
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: "pay", Effect: EffectNonIdempotent, Input: json.RawMessage(`{}`)})
		}
		return r
	}
	suspend := func(call string) CallSuspended {
		return CallSuspended{Call: call, Approval: "a" + call, Digest: "d" + call, Expires: worldEpoch.Add(worldExpiry)}
	}
	approve := func(slot int64, call string) Decided {
		return Decided{Slot: slot, Call: call, Approval: "a" + call, Action: ActionApprove, By: "user:ana", Digest: "d" + call}
	}
	parked := Parked{Expires: worldEpoch.Add(worldExpiry)}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay them."}}},
			Wait: WaitAllSuspended, Resume: ResumeBatchAll,
		}},
		{reply(1, "", "c1", "c2")},
		{suspend("c1"), CallFinished{Call: "c2", IsError: true, Reason: WhyInvalidArguments, Content: "no"}},
		{reply(2, "", "c3", "c4", "c5")},
		{suspend("c3"), suspend("c4"), CallCancelled{Call: "c5", Reason: WhySkipped, Content: "Skipped."}},
		{approve(1, "c1"), Evicted{Total: 1}, reply(3, "Two are left."), parked},
		{Resumed{}, InputReceived{Slot: 2, ID: "m1", Blocks: []UserBlock{{Text{"And?"}}}}, reply(4, "They wait."), parked},
		{Resumed{}, Decided{Slot: 3, Call: "c3", Approval: "ac3", Action: ActionDeny, By: "user:ana", Text: "Denied."}, approve(4, "c4"), CallClaimed{Call: "c1"}, CallClaimed{Call: "c4"}},
		{CallFinished{Call: "c4", Content: "paid"}, CallFinished{Call: "c1", Content: "paid, too"}},
		{reply(5, "Done."), Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}},
	}
}

// goldenContextRun begins with what a builder made of its data; its system texts are kept in the journal and in a blob, and a call is left
// out of its first round.
func goldenContextRun() [][]Event {
	seen := BuiltMessage{Role: RoleUser, Content: UserBlock{Media{Name: "scan", MediaType: "image/png", Data: "iVBORw=="}}, Seen: 2}
	built := ContextBuilt{Messages: []BuiltMessage{{Role: RoleUser, Content: UserBlock{Text{"Order 7."}}}, seen, {Role: RoleAssistant, Content: UserBlock{Text{"Yes?"}}}}}
	look := []RepliedCall{{ID: "c1", Name: "look", Effect: EffectRead, Input: json.RawMessage(`{}`)}}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Input: json.RawMessage(`{"order":7}`)}},
		{built, Replied{Inference: 1, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, System: "s1", SystemText: "You <see> order 7.", Calls: look, Dropped: "Left out: wire."}},
		{CallFinished{Call: "c1", Ran: true, Content: "there"}},
		{Evicted{Total: 2, Summary: "An order."}, Replied{Inference: 2, Model: "m", Requests: 1, Usage: Usage{Input: 20, Output: 2}, Units: 22, Text: "There."}},
		{InputReceived{Slot: 1, ID: "m", Blocks: []UserBlock{{Text{"And?"}}}}},
		{Evicted{Total: 3, Summary: "An order."}, Replied{Inference: 3, Model: "m", Requests: 1, Usage: Usage{Input: 20, Output: 2}, Units: 22, System: "s2", SystemBlob: true, Text: "Done."}},
	}
}

// goldenTicketsRun is a run whose tools ask for input, under a claim and without one; people answer, decide before they are asked, and in vain.
func goldenTicketsRun() [][]Event {
	later := worldEpoch.Add(InputExpiry)
	whole := &Ticket{
		ID: "s1", Action: "pick", Message: "Which <day>?", Parameters: json.RawMessage(`{"n":1.0}`), ResponseSchema: json.RawMessage(`{"type":"object"}`), Mode: TicketPass,
		Pending: Pending{ID: "p1", Name: "Picker", Arguments: json.RawMessage(`{"from":"A & B"}`)},
	}
	asks := func(call, approval string, t *Ticket, ran bool) CallSuspended {
		return CallSuspended{Call: call, Approval: approval, Digest: "d" + call, Expires: later, For: ForInput, Ticket: t, Ran: ran}
	}
	call := func(id string, e Effect) RepliedCall {
		return RepliedCall{ID: id, Name: "rooms_book", Tool: "rooms.book", Effect: e, Input: json.RawMessage(`{"room":"R1"}`)}
	}
	reply := Replied{Inference: 2, Model: "m", Requests: 1, Calls: []RepliedCall{call("c1", EffectNonIdempotent), call("c2", EffectRead), call("c3", EffectNonIdempotent)}}
	kept := DecisionKept{
		Slot: 3, ID: "k1", Target: "c3", Action: ActionApprove, Result: json.RawMessage(`"on Monday"`), Note: "go", By: "user:ana", Groups: []string{"group:finance"},
	}
	answer := Decided{Slot: 2, Call: "c1", Approval: "a1", Action: ActionApprove, By: "user:ana", Digest: "dc1e", Result: json.RawMessage(`{"room":"R2"}`), Args: json.RawMessage(`{"room":"R2"}`)}
	early := Decided{Call: "c3", Approval: "a3", Action: ActionApprove, By: "user:ana", Note: "go", Digest: "dc3", Result: kept.Result, Early: "c3"}
	other := DecisionKept{Slot: 4, Target: "c2", Action: ActionDeny, By: "user:eve"}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Book."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Where?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Here."}}}}},
		{Evicted{Total: 1, Summary: "Somebody asked."}, reply, CallClaimed{Call: "c1"}, asks("c1", "a1", whole, false), answer, asks("c2", "a2", &Ticket{}, true), kept},
		{CallClaimed{Call: "c1"}, CallClaimed{Call: "c3"}, asks("c3", "a3", &Ticket{Mode: TicketResult}, false), early, other, DecisionDropped{Target: "c2", Call: "c2", Why: "not one of the approvers"}},
		{CallFinished{Call: "c1", Content: "booked R2"}, CallFinished{Call: "c3", Content: "on Monday"}, CallCancelled{Call: "c2", Reason: WhyExpired, Content: TextInputExpired()}},
		{Replied{Inference: 3, Model: "m", Requests: 1, Text: "Done."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}},
	}
}

// goldenResultsRun has results that were cut, from every source, a page of one, and tools that asked though their claimants had lost the
// race: one before anybody noticed, one after.
func goldenResultsRun() [][]Event {
	later := worldEpoch.Add(OutcomeExpiry)
	whole := func(of string) *Whole { return &Whole{Call: of, Blob: strings.Repeat("ab", 32), Chars: 11537} }
	call := func(id string) RepliedCall {
		return RepliedCall{ID: id, Name: "rooms_book", Tool: "rooms.book", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"room":"R1"}`)}
	}
	ticket := &Ticket{
		ID: "s1", Action: "pick", Message: "Which <day>?", Parameters: json.RawMessage(`{"n":1.0}`), ResponseSchema: json.RawMessage(`{"type":"object"}`), Mode: TicketPass,
		Pending: Pending{ID: "p1", Name: "Picker", Arguments: json.RawMessage(`{"from":"A & B"}`)},
	}
	reply := Replied{Inference: 2, Model: "m", Requests: 1}
	for _, id := range []string{"c1", "c2", "c3", "c4", "c5", "c6"} {
		reply.Calls = append(reply.Calls, call(id))
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Book."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Where?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Here."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, reply, CallClaimed{Call: "c1"}, CallClaimed{Call: "c2"}, CallClaimed{Call: "c3"}, CallClaimed{Call: "c4"}, CallClaimed{Call: "c5"}, CallClaimed{Call: "c6"},
			CallFinished{Call: "c1", Content: "cut [6000 of 11537]", Whole: whole("")}, CallFinished{Call: "c6", Content: "page", Whole: whole("c1")},
			CallUnknown{Call: "c5", Approval: "a5", Expires: later, Claim: "w1"},
		},
		{
			LateResult{Slot: 2, Call: "c2", Writer: "w1", Content: "cut", Whole: whole("c1")}, Answered{Call: "c3", Content: "cut", Whole: whole("c1"), By: "reconcile"},
			LateSuspended{Slot: 3, Call: "c4", Writer: "w1", Ticket: ticket, Digest: "dc4", Expires: later}, LateSuspended{Slot: 4, Call: "c5", Writer: "w1", Ticket: &Ticket{}, Digest: "dc5", Expires: later},
			Parked{Expires: later},
		},
		{Resumed{}, Decided{Slot: 5, Call: "c4", Approval: ApprovalID("r8", "c4", 1), Action: ActionDeny, By: "user:ana", Text: "No."}, CallCancelled{Call: "c5", Reason: WhyExpired, Content: TextInputExpired()}},
		{Replied{Inference: 3, Model: "m", Requests: 1, Text: "Done."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}},
	}
}

// goldenGateRun has a plugin ask about a call that is to run again, and about one whose tool has its answer.
func goldenGateRun() [][]Event {
	later := worldEpoch.Add(InputExpiry)
	call := func(id string) RepliedCall {
		return RepliedCall{ID: id, Name: "rooms_book", Tool: "rooms.book", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"room":"R1"}`)}
	}
	asks := func(call, approval string, gate bool) CallSuspended {
		return CallSuspended{Call: call, Approval: approval, Digest: "d" + call, Expires: later, For: ForInput, Ticket: &Ticket{}, Gate: gate}
	}
	answer := func(slot int64, call, approval, word string) Decided {
		return Decided{Slot: slot, Call: call, Approval: approval, Action: ActionApprove, By: "user:ana", Digest: "d" + call, Result: json.RawMessage(word)}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Book."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Where?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Here."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, Replied{Inference: 2, Model: "m", Requests: 1, Calls: []RepliedCall{call("c1"), call("c2")}},
			CallClaimed{Call: "c1"}, asks("c1", "a1", false), answer(2, "c1", "a1", `"by the window"`), asks("c1", "a2", true),
			CallClaimed{Call: "c2"}, CallUnknown{Call: "c2", Approval: "a3", Expires: later}, Answered{Slot: 3, Call: "c2", Approval: "a3", Rerun: true, By: "user:ana"}, asks("c2", "a4", true),
		},
		{answer(4, "c1", "a2", `true`), CallClaimed{Call: "c1"}, CallFinished{Call: "c1", Content: "booked R1"}},
		{Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done.", UnknownText: "Nobody knows."}},
	}
}

// goldenMemoRun has tools ask with what they want back: one whose answer a plugin asks about, one that waits, and one that asked late.
func goldenMemoRun() [][]Event {
	later := worldEpoch.Add(InputExpiry)
	call := func(id string) RepliedCall {
		return RepliedCall{ID: id, Name: "rooms_book", Tool: "rooms.book", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"room":"R1"}`)}
	}
	asks := func(call, approval string, t *Ticket, gate bool) CallSuspended {
		return CallSuspended{Call: call, Approval: approval, Digest: "d" + call, Expires: later, For: ForInput, Ticket: t, Gate: gate}
	}
	memo := func(of string) *Ticket { return &Ticket{Message: "Which <day>?", Memo: "A & B of " + of} }
	answer := Decided{Slot: 2, Call: "c1", Approval: "a1", Action: ActionApprove, By: "user:ana", Digest: "dc1", Result: json.RawMessage(`"on Monday"`)}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Book."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Where?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Here."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, Replied{Inference: 2, Model: "m", Requests: 1, Calls: []RepliedCall{call("c1"), call("c2"), call("c3")}},
			CallClaimed{Call: "c1"}, asks("c1", "a1", memo("c1"), false), answer, asks("c1", "a2", &Ticket{}, true),
			CallClaimed{Call: "c2"}, asks("c2", "a3", memo("c2"), false), CallClaimed{Call: "c3"},
		},
		{CallUnknown{Call: "c3", Approval: "a4", Expires: later, Claim: "w1"}, LateSuspended{Slot: 3, Call: "c3", Writer: "w1", Ticket: memo("c3"), Digest: "dc3", Expires: later}},
		{Finished{Reason: ReasonCancelled, By: "user:ana", OpenText: "Not done.", UnknownText: "Nobody knows."}},
	}
}

// goldenServicesRun asks services under an advisory policy; one answers and one does not.
func goldenServicesRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	ask := func(n int64, calls ...RepliedCall) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Calls: calls}
	}
	service := func(id, name string) RepliedCall {
		return RepliedCall{ID: id, Name: name, Effect: EffectIdempotent, Service: true, Input: json.RawMessage(`{"tools":["pay"]}`)}
	}
	asked := func(call string) []Event {
		return []Event{CallClaimed{Call: call}, CallSuspended{Call: call, For: ForAnswer, Expires: later}, Parked{Expires: later}}
	}
	return [][]Event{
		{RunStarted{
			Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Input: json.RawMessage(`{"order":7,"parentSubject$$":"s1"}`),
			Messages: []UserBlock{{Text{`{"order":7}`}}},
		}},
		{ToolsJudged{Tools: []ToolApproval{{Tool: "look", Value: true}}}, ask(1, service("c1", "tool_approval"))},
		asked("c1"),
		{Resumed{}, Answered{Slot: 1, Call: "c1", Content: `{"approvals":[{"tool":"pay","value":false,"comments":"not yet"}]}`, By: "user:ana"}},
		append([]Event{
			Evicted{Total: 1, Summary: "Order 7."}, ToolsJudged{}, ToolsJudged{Call: "c1", Tools: []ToolApproval{{Tool: "pay", Comments: "not yet"}}}, ask(2, service("c2", "human_review")),
		}, asked("c2")...),
		{Resumed{}, CallCancelled{Call: "c2", Reason: WhyExpired, Content: TextAnswerExpired()}},
		{Replied{Inference: 3, Model: "m", Requests: 1, Text: "Nobody answered."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Nobody answered."`)}},
	}
}

// goldenLimitsRun costs something, waits, fails twice, evicts in the entry whose reply is cut and stops the run, and ends so.
func goldenLimitsRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	reply := func(n int64, e Replied) Replied {
		e.Inference, e.Model, e.Requests, e.Usage, e.Units, e.At, e.Cost = n, "m", 2, Usage{Input: 9, Output: 3}, 12, worldTime(n).UnixMilli(), 72_000_001
		return e
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay."}}}}},
		{
			reply(1, Replied{Calls: []RepliedCall{{ID: "c1", Name: "pay", Input: json.RawMessage(`{}`)}}, Pace: &Pace{Asked: []string{"a1"}}}),
			CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: later}, Parked{Expires: later},
		},
		{Resumed{Waited: 90_500}, Decided{Slot: 1, Call: "c1", Approval: "a1", Action: ActionDeny, By: "user:ana", Text: "Denied."}},
		{
			Evicted{Total: 1, Summary: "Somebody asked."},
			reply(2, Replied{
				Text: "It was ", Stop: "max_tokens", Pace: &Pace{FailedRounds: 1, Asked: []string{"a1"}}, Halt: &Halt{Code: StopContains, Detail: "was"},
				Correction: &Correction{Lifecycle: LifecycleNudge, Text: defaultWord(wordGoOn)},
			}),
		},
		{Finished{Reason: Stopped(StopContains), Detail: "was"}},
	}
}

// goldenBreaksRun is refused twice, the second time in an entry that evicts, and ends by a call that waits for another one in an entry that
// evicts, too.
func goldenBreaksRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	said := func(n int64, e Replied) Replied {
		e.Inference, e.Model, e.Requests, e.Usage, e.Units = n, "m", 1, Usage{Input: 9, Output: 3}, 12
		return e
	}
	refused := func(kind CorrectionKind, detail string) *Correction {
		return &Correction{Lifecycle: LifecycleNudge, Text: "Call a tool.", Ephemeral: true, Kind: kind, Detail: detail}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r10", Agent: "a", Definition: "d1", Owner: "r10-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay."}}}}},
		{said(1, Replied{Text: "Well.", Correction: refused(KindNoToolCall, ""), Recovery: &Recovery{Same: 1, Digest: "d1"}})},
		{
			Evicted{Total: 1, Summary: "Somebody asked."},
			said(2, Replied{Text: "<tool>{", Correction: refused(KindMalformed, "there is no </tool>"), Recovery: &Recovery{Same: 2, Digest: "d1"}}),
		},
		{
			Evicted{Total: 2, Summary: "Somebody asked."},
			said(3, Replied{Text: "I pay.", Calls: []RepliedCall{
				{ID: "c1", Name: "pay", Input: json.RawMessage(`{}`), Ahead: true},
				{ID: "c2", Name: "task_completion", Input: json.RawMessage(`{"result":"Paid."}`), Effect: EffectRead, Breaks: true},
			}}),
			CallSuspended{Call: "c1", Approval: "a1", Digest: "d", Expires: later}, Parked{Expires: later},
		},
		{Resumed{Waited: 10}, CallFinished{Call: "c2", Content: "Paid."}, Decided{Slot: 1, Call: "c1", Approval: "a1", Action: ActionDeny, By: "user:ana", Text: "Denied."}},
		{Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Paid."`)}},
	}
}

// goldenStaticRun ends with a text that no model wrote.
func goldenStaticRun() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "a", Definition: "d1", Owner: "r9-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay."}}}}},
		{Finished{Reason: ReasonNaturalEnd, Static: "We are closed.", Output: json.RawMessage(`"We are closed."`), Requests: 3}},
	}
}

// goldenRepaired has a call whose arguments the model did not write as they are.
func goldenRepaired() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r7", Agent: "a", Definition: "d1", Owner: "r7-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Tidy."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Calls: []RepliedCall{{ID: "c1", Name: "files_list", Tool: "files.list", Effect: EffectRead, Input: json.RawMessage(`{"path":"/in"}`), Repaired: true}}}},
		{CallClaimed{Call: "c1"}},
		{CallFinished{Call: "c1", Content: "a.png"}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}, Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"Done."`)}},
	}
}

// goldenHiddenRun hides a tool in an entry that evicts and has no reply.
func goldenHiddenRun() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Which?"}},
		{InputReceived{Slot: 1, ID: "i", Blocks: []UserBlock{{Text{"Both."}}}}, Evicted{Total: 1}, Hooked{N: 1, Phase: PhaseBeforeInference, Hidden: []string{"payments.send"}}},
		{Replied{Inference: 2, Model: "m", Requests: 1, Text: "Done."}, Finished{Reason: ReasonNaturalEnd}},
	}
}

// goldenHookedRun is a run whose plugins hide a tool, let one call pass and have somebody asked about another, say something behind a
// round, and stop the run; with a snapshot in the middle of it.
func goldenHookedRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	in := json.RawMessage(`{"amount":1}`)
	patch := func(path, value string) []Patch { return []Patch{{Path: path, Value: json.RawMessage(value)}} }
	call := func(id, tool string, e Effect) RepliedCall {
		return RepliedCall{ID: id, Name: ModelName(tool), Tool: tool, Effect: e, Input: in}
	}
	ticket := &Ticket{
		ID: "s1", Action: "confirm", Message: "May it?", Parameters: in, ResponseSchema: json.RawMessage(`{"type":"boolean"}`), Mode: "replay",
		Pending: Pending{ID: "fc_c2-2", Name: "PermissionConfirm", Arguments: json.RawMessage(`{"tool_name":"mail.send"}`)},
	}
	reply := func(n int64, calls ...RepliedCall) Replied {
		return Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: "One moment.", Calls: calls}
	}
	hide := func(n int64) Hooked {
		return Hooked{N: n, Phase: PhaseBeforeInference, Hidden: []string{"payments.send"}}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "a", Definition: "d1", Owner: "r8-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{
			Hooked{N: 1, Phase: PhaseRunStart, Patches: patch("/mood/now", `{"is":"<good & 1.0>"}`)}, hide(2),
			reply(1, call("c1", "payments.send", EffectNonIdempotent), call("c2", "look", EffectRead)),
		},
		{
			CallFinished{Call: "c1", IsError: true, Reason: WhyOutOfScope, Content: defaultWord(wordOutOfScope, "payments_send")}, CallFinished{Call: "c2", Ran: true, Content: "there"},
			Hooked{N: 3, Phase: PhaseAfterTool, Call: "c2", Patches: patch("/mood/then", `2`), Says: []Said{{Text: "Be brief.", Reminder: true}, {Text: "And the letter?"}}},
		},
		{
			Evicted{Total: 1, Summary: "Somebody asked."}, hide(4),
			reply(2, call("c2-0", "payments.send", EffectNonIdempotent), call("c2-1", "look", EffectRead), call("c2-2", "mail.send", EffectNonIdempotent)),
			Hooked{N: 5, Phase: PhaseAfterInference, End: Stopped("enough")}, Hooked{N: 6, Phase: PhaseBeforeTool, Call: "c2-1", Patches: patch("/seen", `["c2-1"]`)},
			CallSuspended{Call: "c2-2", Approval: "a1", Digest: "d", Expires: later, For: ForInput, Ticket: ticket},
			Hooked{N: 7, Phase: PhaseAfterTool, Call: "c2-2", Failed: &RunError{Code: CodeInternal, Message: "plugin p failed in after_tool_execute: it panicked"}},
		},
		{
			CallFinished{Call: "c2-0", IsError: true, Reason: WhyBlocked, Content: (&Definition{}).word(wordBlockedCall, map[string]any{"Tool": "payments_send", "Reason": "no"})}, CallFinished{Call: "c2-1", Ran: true, Content: "there"},
			Hooked{N: 8, Phase: PhaseRunEnd, Patches: patch("/parked", `true`)}, Parked{Expires: later},
		},
		{Resumed{}, Decided{Slot: 1, Call: "c2-2", Approval: "a1", Action: ActionDeny, By: "user:ana", Text: "Denied."}, Finished{Reason: Stopped("enough")}},
	}
}

// goldenGuardsRun goes in circles: a duplicate, a text that is sent back, empty replies, and the summary that is asked for over them.
func goldenGuardsRun() [][]Event {
	reply := func(n int64, e Replied) Replied {
		e.Inference, e.Model, e.Requests, e.Usage, e.Units = n, "m", 1, Usage{Input: 9, Output: 3}, 12
		return e
	}
	look := func(id, repeats string) []RepliedCall {
		return []RepliedCall{{ID: id, Name: "look", Effect: EffectRead, Input: json.RawMessage(`{"at":1}`), Repeats: repeats}}
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "a", Definition: "d1", Owner: "r9-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Look."}}}}},
		{reply(1, Replied{Calls: look("c1", "")})},
		{CallFinished{Call: "c1", Ran: true, Content: "there"}},
		{reply(2, Replied{Calls: look("c2", "c1"), Tally: &Tally{Entered: 1}, Watch: &Watch{FailedRounds: 1, Failing: []FailingTool{{Tool: "pay", Rounds: 2}}}})},
		{CallFinished{Call: "c2", IsError: true, Reason: WhyDuplicate, Content: "You already have this result."}},
		{
			Evicted{Total: 3, Summary: "Somebody asked to look."},
			reply(3, Replied{
				Text: "Two remaining.", Correction: &Correction{Lifecycle: LifecycleNudge, Text: "Go on.", Kind: KindIncomplete},
				Tally: &Tally{Entered: 1, Deflections: 2, Empty: 1}, Watch: &Watch{FailedRounds: 1, Duplicates: 1, Failing: []FailingTool{{Tool: "pay", Rounds: 2}}},
			}),
		},
		{reply(4, Replied{Correction: &Correction{Lifecycle: LifecycleSummary, Text: "2 empty replies in a row", Ephemeral: true, Kind: KindEmpty}, Tally: &Tally{Entered: 1, Deflections: 2, Empty: 2}})},
		{reply(5, Replied{Summary: true, Text: "It is there.", Tally: &Tally{Entered: 1, Deflections: 2}, Watch: &Watch{}}), Finished{Reason: ReasonNaturalEnd, Output: json.RawMessage(`"It is there."`)}},
	}
}

// goldenPermitsRun has every fact about permissions of tools: requests that are answered, that expire, that wait while others run; tools
// that are granted once and for the run, and denied; what policy and backend said; and the end that comes of it when they fail.
func goldenPermitsRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	pay, mail := "payments.send", "mails.send"
	reply := func(n int64, calls ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: "On it."}
		for _, c := range calls {
			id, tool, _ := strings.Cut(c, " ")
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: strings.ReplaceAll(tool, ".", "_"), Tool: tool, Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)})
		}
		return r
	}
	asks := func(tool string, calls ...string) RequestedTool {
		return RequestedTool{Tool: tool, Name: strings.ReplaceAll(tool, ".", "_"), Calls: calls, Digests: []string{"d-" + tool}}
	}
	blocked := func(call string) CallFinished {
		return CallFinished{Call: call, IsError: true, Reason: WhyAwaiting, Content: defaultWord(wordAwaiting, "it")}
	}
	said := func(slot int64, approval string, a DecisionAction, tools ...string) Decided {
		return Decided{Slot: slot, Approval: approval, Action: a, By: "user:ana", Note: "so be it", Tools: tools}
	}
	once := said(1, "a1", ActionApprove, pay)
	once.Once = true
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r8", Agent: "desk", Definition: "d1", Owner: "r8-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Settle this."}}}}, PolicyEvaluated{Tools: []string{mail}}},
		{reply(1, "c1 "+pay, "c2 "+mail, "c3 audit")},
		{
			PermissionRequested{Approval: "a1", Expires: later, Tools: []RequestedTool{asks(pay, "c1"), asks(mail, "c2"), asks("audit", "c3")}},
			blocked("c1"), blocked("c2"), blocked("c3"), Parked{Expires: later},
		},
		{Resumed{}, PolicyEvaluated{Tools: []string{mail}}, once, said(2, "a1", ActionDeny, mail), PermissionAnswered{Approval: "a1", Expired: true, Text: `{"granted":["payments_send"]}`}},
		{reply(2, "c4 "+pay)},
		{CallClaimed{Call: "c4", Under: "a1", Digest: "d-" + pay, Once: true}, CallFinished{Call: "c4", Content: "paid"}},
		{reply(3, "c5 wire", "c6 wire"), CallSuspended{Call: "c5", Approval: "a5", Digest: "x5", Expires: later}, CallSuspended{Call: "c6", Approval: "a6", Digest: "x6", Expires: later}, Parked{Expires: later}},
		{
			Resumed{}, PolicyEvaluated{Tools: []string{mail}}, Decided{Slot: 3, Call: "c5", Approval: "a5", Action: ActionApprove, By: "user:ana", Digest: "x5", Permit: "d-wire"},
			CallPermitted{Call: "c6", Approval: "a5"}, CallClaimed{Call: "c5"}, CallClaimed{Call: "c6", Under: "a5", Digest: "d-wire"}, CallFinished{Call: "c5", Content: "wired"}, CallFinished{Call: "c6", Content: "wired"},
		},
		{
			Evicted{Total: 3, Summary: "Somebody asked."}, reply(4, "c7 wire", "c8 "+pay, "c9 audit"), PermissionChecked{Inference: 4, Tools: map[string]PermissionStatus{pay: PermissionRequestable, "wire": PermissionApproved}},
			CallClaimed{Call: "c7", Under: "a5", Digest: "d-wire"},
			PermissionRequested{Approval: "a8", Expires: later, Tools: []RequestedTool{asks(pay, "c8")}}, blocked("c8"),
			said(4, "a8", ActionCancel, pay), PermissionAnswered{Approval: "a8", Text: `{"granted":[]}`},
			PermissionRequested{Approval: "a9", Expires: later, Reason: "for the audit", Tools: []RequestedTool{asks("audit", "c9")}}, blocked("c9"), said(5, "a9", ActionApprove, "audit"),
			InputReceived{Slot: 6, ID: "m1", Blocks: []UserBlock{{Text{"And?"}}}}, PermissionFailed{Message: "the backend is away"},
		},
		{CallFinished{Call: "c7", Content: "wired"}, PermissionAnswered{Approval: "a9", Text: `{"granted":["audit"]}`}},
		{Fail(CodePermissionFailed, "the backend is away")},
	}
}

// goldenStandingRun has calls under standing grants of earlier runs, one of which is revoked before it is claimed, as is one of its own.
func goldenStandingRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	reply := func(n int64, calls ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 9, Output: 3}, Units: 12, Text: "On it."}
		for _, c := range calls {
			id, tool, _ := strings.Cut(c, " ")
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: tool, Tool: tool, Effect: EffectNonIdempotent, Input: json.RawMessage(`{"n":1}`)})
		}
		return r
	}
	grant := func(tool string) StandingGrant {
		return StandingGrant{Tool: tool, Approval: "a-" + tool, Digest: "d-" + tool, By: "user:ana", Note: "for good", Expires: later}
	}
	checked := func(n int64, grants ...StandingGrant) PermissionChecked {
		return PermissionChecked{Inference: n, Tools: map[string]PermissionStatus{}, Standing: grants}
	}
	given := func(slot int64, call, tool string) Decided {
		id := call[1:]
		return Decided{Slot: slot, Call: call, Approval: "a" + id, Action: ActionApprove, By: "user:ana", Digest: "x" + id, Permit: "p-" + tool, Standing: true}
	}
	revoked := checked(2, grant("wire"), grant("pay"))
	revoked.Revoked = []PermitRef{{Tool: "audit", Approval: "a2"}}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "desk", Definition: "d1", Owner: "r9-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{reply(1, "c1 wire", "c2 audit", "c5 ledger")},
		{
			checked(1, grant("wire")), CallClaimed{Call: "c1", Under: "a-wire", Digest: "d-wire"}, CallFinished{Call: "c1", Content: "wired"},
			CallSuspended{Call: "c2", Approval: "a2", Digest: "x2", Expires: later}, CallSuspended{Call: "c5", Approval: "a5", Digest: "x5", Expires: later},
			Parked{Expires: later},
		},
		{
			Resumed{}, given(1, "c2", "audit"), given(2, "c5", "ledger"), CallClaimed{Call: "c2"}, CallClaimed{Call: "c5"},
			CallFinished{Call: "c2", Content: "audited"}, CallFinished{Call: "c5", Content: "booked"},
		},
		{Evicted{Total: 1, Summary: "Wired."}, reply(2, "c3 wire", "c4 pay"), revoked, CallClaimed{Call: "c3", Under: "a-wire", Digest: "d-wire"}},
		{checked(2, grant("wire")), CallSuspended{Call: "c4", Approval: "a4", Digest: "x4", Expires: later}, CallFinished{Call: "c3", Content: "wired"}, Parked{Expires: later}},
	}
}

// goldenEvictedRun evicts with a summary that a model wrote, runs out of room while a call of an open round waits, parks, and goes on.
func goldenEvictedRun() [][]Event {
	later := worldEpoch.Add(worldExpiry)
	reply := func(n int64, calls ...string) Replied {
		r := Replied{Inference: n, Model: "m", Requests: 1, Usage: Usage{Input: 900, Output: 3, CacheRead: 20}, Units: 903, Text: "On it.", Room: &Room{Left: 290, Of: 1000}}
		for _, id := range calls {
			r.Calls = append(r.Calls, RepliedCall{ID: id, Name: "wire", Effect: EffectNonIdempotent, Input: json.RawMessage(`{"path":"a.txt"}`)})
		}
		return r
	}
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r9", Agent: "a", Definition: "d1", Owner: "r9-0", MaxInteractions: 9, Wait: WaitAllSuspended, Resume: ResumeEach, Messages: []UserBlock{{Text{"Settle this."}}}}},
		{reply(1, "c1")},
		{CallClaimed{Call: "c1"}, CallFinished{Call: "c1", Content: "wired"}},
		{
			Evicted{Total: 1, Summary: "They want it settled.", Files: []string{"b.txt", "a.txt"}, Requests: 2, Usage: &Usage{Input: 70, Output: 7, CacheRead: 2, CacheWrite: 1}, Units: 77, Cost: 42},
			reply(2, "c2-0", "c2-1"),
		},
		{CallFinished{Call: "c2-0", IsError: true, Reason: WhyDenied, Content: "no"}, CallSuspended{Call: "c2-1", Approval: "a1", Digest: "d", Expires: later}},
		{Evicted{Total: 4, Summary: "- assistant: On it.", Files: []string{"a.txt"}}, ContextFull{Left: 12, Of: 1000}, Parked{Expires: later}},
		{Resumed{}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"And?"}}}}, reply(3)},
		{CancelRun("user:ana", "stop")},
	}
}

// goldenOwnedRun is handed over, and evicts then.
func goldenOwnedRun() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r11", Agent: "a", Definition: "d1", Owner: "r11-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Count."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "One."}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"On."}}}}},
		{HandedOver{Owner: "r11-1"}},
		{Evicted{Total: 2, Summary: "They count."}, Replied{Inference: 2, Model: "m", Requests: 1, Text: "Two."}, InputReceived{Slot: 2, ID: "m2", Blocks: []UserBlock{{Text{"On."}}}}},
		{Replied{Inference: 3, Model: "m", Requests: 1, Text: "Three."}, Finished{Reason: ReasonNaturalEnd}},
	}
}

// goldenListedRun lists two servers, one of which is down, loses a tool while it is called, and goes on behind an eviction.
func goldenListedRun() [][]Event {
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r10", Agent: "a", Definition: "d1", Owner: "r10-0", MaxInteractions: 9, Messages: []UserBlock{{Text{"Read this."}}}}},
		{ToolsListed{Definition: "d2", Servers: []ServerState{
			{Name: "files", Protocol: "2026-07-28", Tools: []string{"read", "list"}, Disabled: []DisabledTool{
				{Tool: "wipe", Why: DisabledNew, Digest: "5"}, {Tool: "a", Why: DisabledCollision, Detail: "b.a is files_a to the model already"},
			}},
			{Name: "clock", Problem: "connection refused"},
		}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Calls: []RepliedCall{{ID: "c1", Name: "files_read", Tool: "files.read", Effect: EffectRead, Input: json.RawMessage(`{}`)}}}},
		{CallFinished{Call: "c1", IsError: true, Reason: WhyToolChanged, Content: "no"}, ToolsDisabled{Server: "files", Tool: "read", Why: DisabledChanged, Digest: "6"}},
		{Evicted{Total: 1}, Replied{Inference: 2, Model: "m", Requests: 1, Text: "I cannot."}},
		{Finished{Reason: ReasonNaturalEnd}},
	}
}

// keysIn notes the path of every key in v; lists add nothing to a path.
func keysIn(have map[string]bool, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			have[at+"."+key] = true
			keysIn(have, at+"."+key, child)
		}
	case []any:
		for _, child := range v {
			keysIn(have, at, child)
		}
	}
}

// keysOf notes the path of every key that a value of type t has in JSON.
func keysOf(want map[string]bool, at string, t reflect.Type) {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[UserBlock]():
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		keysOf(want, at, t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				continue
			}
			if f.Anonymous && f.Tag.Get("json") == "" {
				keysOf(want, at, f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			want[at+"."+name] = true
			keysOf(want, at+"."+name, f.Type)
		}
	}
}
