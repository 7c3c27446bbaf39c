package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
)

// These tests run random programs with random disturbances. Every invariant must hold and every run must come to rest.
// COUNTERSIGN_RANDOM=n runs n programs (`make random`). A failure prints the seed, the program and its disturbances,
// ready for testdata/regressions.

// TestRandomPrograms runs programs with up to four faults and three interventions.
func TestRandomPrograms(t *testing.T) {
	checkProperty(t, 30, func(t *rapid.T) {
		p := drawProgram(t, false)
		r := p.play(t, Script{})
		for range rapid.IntRange(0, 7).Draw(t, "disturbances") {
			next, ok := p.disturb(t, r.Calls)
			if !ok {
				return
			}
			r = p.play(t, next)
		}
	})
}

// TestRandomProgramsTwice: a second run gives the same journals to the byte, and so does a run with repeated reads.
func TestRandomProgramsTwice(t *testing.T) {
	checkProperty(t, 10, func(t *rapid.T) {
		p := drawProgram(t, false)
		first := p.play(t, Script{})
		require.Equal(t, journalEntries(t, first), journalEntries(t, p.play(t, Script{})), "again\n%s", p.archive)
		reads := slices.DeleteFunc(slices.Clone(first.Calls), func(c fault.Call) bool { return !slices.Contains(readPorts, c.Port) })
		var s Script
		for _, c := range rapid.SliceOfN(rapid.SampledFrom(reads), 1, 6).Draw(t, "reads") {
			s = s.withFault(fault.Point{Call: c.Number, Kind: fault.Twice})
		}
		require.Equal(t, journalEntries(t, first), journalEntries(t, p.play(t, s)), "with reads repeated: %s\n%s", s, p.archive)
	})
}

var readPorts = []string{"table.Get", "table.Query", "blobs.Get", "blobs.Size", "waiter.Status"}

// TestRandomCrashes: a crash changes neither the effects that must not be repeated nor the status of calls.
func TestRandomCrashes(t *testing.T) {
	checkProperty(t, 12, func(t *rapid.T) {
		p := drawProgram(t, true)
		plain := p.play(t, Script{})
		if p.isTimeDependent() {
			return
		}
		r := plain
		for range rapid.IntRange(1, 3).Draw(t, "crashes") {
			left := r.Calls[min(p.script.lastCall(), len(r.Calls)):]
			if len(left) == 0 {
				return
			}
			c := rapid.SampledFrom(left).Draw(t, "at")
			k := rapid.SampledFrom(fault.Crashes()).Draw(t, "kind")
			if r = p.play(t, p.script.withFault(fault.Point{Call: c.Number, Kind: k})); r.Diverged || p.asksWithPlaceholders(r) || holdsRerun(r) {
				return
			}
			require.Equal(t, plain.Effects, r.Effects, "effects, %s\n%s", p.script, p.archive)
			require.Equal(t, callStatuses(plain), callStatuses(r), "calls, %s\n%s", p.script, p.archive)
		}
	})
}

// TestRandomDuplicates: a second delivery changes nothing but the number of attempts.
func TestRandomDuplicates(t *testing.T) {
	checkProperty(t, 12, func(t *rapid.T) {
		p := drawProgram(t, true)
		plain := p.play(t, Script{})
		if p.isTimeDependent() {
			return
		}
		r := plain
		for range rapid.IntRange(1, 4).Draw(t, "duplicates") {
			left := slices.DeleteFunc(slices.Clone(r.Calls[min(p.script.lastCall(), len(r.Calls)):]), func(c fault.Call) bool { return c.NotRepeatable })
			if len(left) == 0 {
				return
			}
			c := rapid.SampledFrom(left).Draw(t, "at")
			next := p.script.withFault(fault.Point{Call: c.Number, Kind: fault.Twice})
			if do := rapid.SampledFrom([]scenario.InterventionKind{"", "", scenario.StartAgain, scenario.Redeliver}).Draw(t, "do"); do != "" {
				next = p.script.withIntervention(scenario.Intervention{Call: c.Number, Do: do})
			}
			if r = p.play(t, next); r.Diverged {
				return
			}
			require.Equal(t, outcomeOf(plain), outcomeOf(r), "what came of it, %s\n%s", p.script, p.archive)
		}
	})
}

// checkProperty runs rapid.Check with few programs, or as many as COUNTERSIGN_RANDOM or -rapid.checks say.
func checkProperty(t *testing.T, few int, property func(t *rapid.T)) {
	t.Helper()
	n := os.Getenv("COUNTERSIGN_RANDOM")
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if n == "" {
		n = fmt.Sprint(few)
	}
	before := flag.Lookup("rapid.checks").Value.String()
	if !given {
		require.NoError(t, flag.Lookup("rapid.checks").Value.Set(n))
		defer func() { _ = flag.Lookup("rapid.checks").Value.Set(before) }()
	}
	rapid.Check(t, property)
}

// program is a random program with its disturbances.
type program struct {
	archive string
	tags    map[string]bool
	*scenario.Scenario
	script Script
}

func drawProgram(t *rapid.T, steady bool) *program {
	g := &generator{t: t, tags: map[string]bool{}, fixedResults: steady}
	p := &program{archive: g.writeProgram(), tags: g.tags}
	var err error
	if p.Scenario, err = scenario.Load("random.txtar", []byte(p.archive)); err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, p.archive)
	}
	return p
}

// play runs the program under a script, and requires all invariants.
func (p *program) play(t *rapid.T, s Script) scenario.Result {
	p.script = s
	r := p.Run(scenario.Options{Faults: s.Faults, Interventions: s.Interventions, InvariantsOnly: true})
	if len(r.Failures) > 0 {
		var b strings.Builder
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "%s\n", f)
		}
		t.Fatalf("promises broken\n%s\nscript: %s\n%s\n%s", &b, s, disturbedCalls(s, r), p.archive)
	}
	return r
}

// disturbedCalls lists the calls of a script's disturbances.
func disturbedCalls(s Script, r scenario.Result) string {
	var b strings.Builder
	for _, c := range r.Calls {
		hit := slices.ContainsFunc(s.Faults, func(f fault.Point) bool { return f.Call == c.Number }) ||
			slices.ContainsFunc(s.Interventions, func(a scenario.Intervention) bool { return a.Call == c.Number })
		if hit {
			fmt.Fprintf(&b, "%s\n", c)
		}
	}
	return b.String()
}

// disturb draws a disturbance after the last one. It reports false if no call is left.
func (p *program) disturb(t *rapid.T, calls []fault.Call) (Script, bool) {
	left := calls[min(p.script.lastCall(), len(calls)):]
	if len(left) == 0 {
		return p.script, false
	}
	if len(p.script.Interventions) < 3 && rapid.IntRange(0, 2).Draw(t, "act") == 2 {
		do := rapid.SampledFrom(scenario.InterventionKinds()).Draw(t, "do")
		c := rapid.SampledFrom(callsFor(do, left)).Draw(t, "at")
		lost := rapid.IntRange(0, 3).Draw(t, "lost") == 3
		return p.script.withIntervention(scenario.Intervention{Call: c.Number, Do: do, Lost: lost}), true
	}
	if len(p.script.Faults) >= 4 {
		return p.script, false
	}
	k := rapid.SampledFrom(fault.Kinds()).Draw(t, "kind")
	byPort := map[string][]fault.Call{}
	var ports []string
	for _, c := range left {
		if len(k.Variants(c, 5)) == 0 {
			continue
		}
		if byPort[c.Port] == nil {
			ports = append(ports, c.Port)
		}
		byPort[c.Port] = append(byPort[c.Port], c)
	}
	if len(ports) == 0 {
		return p.script, false
	}
	c := rapid.SampledFrom(byPort[rapid.SampledFrom(ports).Draw(t, "port")]).Draw(t, "at")
	return p.script.withFault(rapid.SampledFrom(k.Variants(c, 5)).Draw(t, "variant")), true
}

// callsFor returns the calls at which an intervention may have something to do. Those about a wait need calls from the
// first wait on.
func callsFor(do scenario.InterventionKind, calls []fault.Call) []fault.Call {
	waits := slices.IndexFunc(calls, func(c fault.Call) bool { return c.Invocation == "approve" })
	if waits < 0 || !slices.Contains([]scenario.InterventionKind{scenario.Approve, scenario.Deny, scenario.DecideTwice, scenario.Expire}, do) {
		return calls
	}
	return calls[waits:]
}

// isTimeDependent reports whether the outcome of the program depends on timing, which a crash or a duplicate may
// change. With delegates it does: people act when all runs rest, so a late run moves their actions in the others. A wait
// within a call is over its timeout, but not in the attempt behind a crash. A budget of a period counts replies that are
// lost.
func (p *program) isTimeDependent() bool {
	tags := []string{"stop.timeout", "delegates", "do=deploy", "then=map[fork:replied]", "then=map[fork:call_suspended]", "limits.period"}
	return p.tags["do=wait"] && p.tags["at"] || slices.ContainsFunc(tags, func(tag string) bool { return p.tags[tag] })
}

// asksWithPlaceholders reports whether a crash left an outcome unknown in a run that goes on meanwhile: the model is then
// asked once more, and may say something else.
func (p *program) asksWithPlaceholders(r scenario.Result) bool {
	return p.Agents()[0].Wait == run.WaitAllSuspended && slices.ContainsFunc(r.Runs, func(one scenario.Run) bool {
		return slices.ContainsFunc(one.Journal, func(e run.Entry) bool {
			return slices.ContainsFunc(e.Events, func(ev run.Event) bool { return run.EventType(ev) == "call_unknown" })
		})
	})
}

// holdsRerun reports whether a run rests before a call that is to run again. Under all_answered and batch_all such a call
// waits until every other call of the round is answered, and the script may be over before that.
func holdsRerun(r scenario.Result) bool {
	return slices.ContainsFunc(r.Runs, func(one scenario.Run) bool {
		return one.State.Status == run.RunWaiting && slices.ContainsFunc(one.State.Live, func(c run.Call) bool {
			return c.Status == run.StatusResuming
		})
	})
}

// journalEntries returns the stored entries of all runs.
func journalEntries(t *rapid.T, r scenario.Result) []string {
	var list []string
	for _, one := range r.Runs {
		for _, e := range one.Journal {
			raw, err := run.MarshalEntry(e)
			require.NoError(t, err)
			list = append(list, one.State.Run+" "+string(raw))
		}
	}
	return list
}

// callStatuses lists the calls with their status.
func callStatuses(r scenario.Result) []string {
	var list []string
	for _, run := range r.Runs {
		for _, c := range run.State.Calls() {
			list = append(list, fmt.Sprintf("%s %s %s %s", run.State.Run, c.ID, c.Tool, c.Status))
		}
	}
	return list
}

// outcomeOf returns the sorted outcome of all runs, without times and numbers of attempts. Parallel runs may end in any
// order.
func outcomeOf(r scenario.Result) []string {
	list := callStatuses(r)
	for _, run := range r.Runs {
		s := run.State
		view, err := policy.View(&s)
		if err != nil {
			return []string{err.Error()}
		}
		raw, err := json.Marshal(view)
		if err != nil {
			return []string{err.Error()}
		}
		var shown struct {
			Status, Reason string
			Error, Output  json.RawMessage
			Messages       []struct {
				Role      string
				SeenCount int
				Content   json.RawMessage
			}
			Inferences int
			State      json.RawMessage
		}
		if err := json.Unmarshal(raw, &shown); err != nil {
			return []string{err.Error()}
		}
		list = append(list, fmt.Sprintf("%s %s %s error=%s output=%s inferences=%d state=%s", s.Run, shown.Status, shown.Reason, shown.Error, shown.Output, shown.Inferences, shown.State))
		for _, m := range shown.Messages {
			list = append(list, fmt.Sprintf("%s %s %d %s", s.Run, m.Role, m.SeenCount, m.Content))
		}
	}
	slices.Sort(list)
	return list
}
