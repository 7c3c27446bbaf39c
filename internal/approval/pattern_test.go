package approval_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

func atMost(amount string) []run.Condition {
	return []run.Condition{{Path: "/amount", Lte: json.RawMessage(amount)}}
}

// withBoundedGrant runs a test in a bubble after a run in which ana gave a standing grant of refund with these bounds.
// The policy allows patterns.
func withBoundedGrant(t *testing.T, under policyMode, b *agent.GrantBounds, f func(t *testing.T, r *fixture)) {
	t.Helper()
	withFixture(t, func(t *testing.T, r *fixture) {
		r.allowStandingGrants(under)
		r.startAndPark(args)
		r.must(r.grant(b, ana))
		f(t, r)
	})
}

func (r *fixture) allowStandingGrants(under policyMode) {
	r.t.Helper()
	p := &r.def.Permission
	p.Mode, p.Scope, p.Grants = under.mode, under.scope, agent.GrantsStanding
	p.Bounds.Pattern = under.scope == agent.ScopeCall
	require.NoError(r.t, r.def.Check())
}

func (r *fixture) grant(b *agent.GrantBounds, by policy.Principal) (approval.Approval, error) {
	q := r.request(approval.Approve, by)
	q.Grant = b
	return r.desk().Decide(r.ctx, q)
}

// startRunWithArgs starts another run that calls refund with these arguments, and reports whether it waits for a
// person.
func (r *fixture) startRunWithArgs(key, args string) bool {
	r.t.Helper()
	r.replies = []agent.Reply{refundReply("c1", args)}
	return r.startNextRun(key)
}

// A standing grant is of the tool, under scope call of the very arguments, and of a pattern of what fits it, whatever
// else these arguments hold. Those that others decide about it never covers.
func TestA11WhatAStandingGrantCovers(t *testing.T) {
	for _, c := range []struct {
		args                 string
		exact, pattern, tool bool
	}{
		{args, true, true, true},
		{`{"to":"ana@example.com","amount":100}`, true, true, true},
		{`{"amount":100,"to":"ana\u0040example.com"}`, true, true, true},
		{`{"amount":101,"to":"ana@example.com"}`, false, true, true},
		{`{"amount":100.0,"to":"ana@example.com"}`, false, true, true},
		{`{"amount":100,"to":"ben@example.com"}`, false, true, true},
		{`{"amount":100,"to":"ana@example.com","now":true}`, false, true, true},
		{`{"amount":2.000e2,"to":"x"}`, false, true, true},
		{`{"amount":200.00000000000000000001,"to":"x"}`, false, false, true},
		{`{"amount":2000,"to":"x"}`, false, false, false},
	} {
		for _, under := range policies {
			for _, b := range []*agent.GrantBounds{nil, {When: atMost("200")}} {
				t.Run(fmt.Sprint(c.args, under, b != nil), func(t *testing.T) {
					withBoundedGrant(t, under, b, func(t *testing.T, r *fixture) {
						covers := c.exact
						if b != nil {
							covers = c.pattern
						} else if under.scope == agent.ScopeTool {
							covers = c.tool
						}
						before := len(r.refund.paid)
						require.Equal(t, !covers, r.startRunWithArgs("k2", c.args))
						if !covers {
							require.Len(t, r.refund.paid, before)
							return
						}
						require.Equal(t, []string{c.args}, r.refund.paid[before:])
						require.Equal(t, r.listStanding()[0].Approval, r.call().Grant.Approval, "it says who granted it")
					})
				})
			}
		}
	}
}

// What cannot be compared is outside of every pattern.
func TestA11PatternOfWhatIsNotThere(t *testing.T) {
	for _, when := range [][]run.Condition{
		{{Path: "/note", Ne: json.RawMessage(`"no"`)}}, {{Path: "/to", Lte: json.RawMessage("5")}}, {{Path: "/amount", Matches: "1"}}, {{Path: "/to/0", Eq: json.RawMessage(`"a"`)}},
	} {
		require.False(t, jsonx.Fits(when, json.RawMessage(args)))
		require.False(t, jsonx.Fits(append(atMost("200"), when...), json.RawMessage(args)))
	}
	require.True(t, jsonx.Fits(nil, json.RawMessage(args)))
}

// Calls of one round take their uses together; who comes late is asked.
func TestA11UsesOfOneRound(t *testing.T) {
	for _, under := range policies {
		for _, executor := range executors {
			withBoundedGrant(t, under, &agent.GrantBounds{When: atMost("200"), Uses: 2}, func(t *testing.T, r *fixture) {
				r.def.Executor, r.def.Guards.DuplicateCalls = executor, false
				r.scriptCalls(1, 3)
				before := len(r.refund.paid)
				require.True(t, r.startNextRun("k2"), "%s, %s", under, executor)
				require.Len(t, r.refund.paid, before+2)
				require.Empty(t, r.listStanding())
			})
		}
	}
}

var executors = []agent.Executor{agent.ExecutorSequential, agent.ExecutorParallelBatch, agent.ExecutorParallelStreaming}

// A run that takes uses one by one goes on with what another has left it.
func TestA11UsesBetweenTwoCallsOfARound(t *testing.T) {
	for _, under := range []policyMode{replaysTool, replaysCall} { // elsewhere a round is judged before any call of it runs
		for uses, paid := range map[int]int{2: 2, 3: 3} {
			withBoundedGrant(t, under, &agent.GrantBounds{When: atMost("200"), Uses: uses}, func(t *testing.T, r *fixture) {
				r.def.Executor, r.def.Guards.DuplicateCalls = agent.ExecutorSequential, false
				before := len(r.refund.paid)
				hookWrite(r.table, "refund#", func() error { // the first claim; the second meets another run
					hookWrite(r.table, "refund#", func() error {
						ours := r.run
						require.False(t, r.startRunWithArgs("k3", args))
						r.run = ours
						return nil
					}, nil)
					return nil
				}, nil)
				r.scriptCalls(1, 2)
				require.Equal(t, uses == 2, r.startNextRun("k2"))
				require.Equal(t, before+paid, len(r.refund.paid))
				require.Empty(t, r.listStanding())
			})
		}
	}
}

// A claim of which nobody knows whether it was written is one use, and so is a call that runs again.
func TestA11AUseIsCountedOnce(t *testing.T) {
	for _, under := range policies {
		withBoundedGrant(t, under, &agent.GrantBounds{When: atMost("200"), Uses: 3}, func(t *testing.T, r *fixture) {
			hookWrite(r.table, "refund#", nil, func() error { return errReset })
			require.False(t, r.startRunWithArgs("k2", args))
			require.Equal(t, 1, r.listStanding()[0].Used)
		})
	}
	for _, under := range []policyMode{replaysTool, replaysCall} {
		for _, revoked := range []bool{false, true} {
			withFixture(t, func(t *testing.T, r *fixture) {
				r.def.Tools[0].Effect, r.def.Permission.Default = run.EffectIdempotent, agent.DefaultAsk
				r.allowStandingGrants(under)
				r.startAndPark(args)
				r.must(r.grant(&agent.GrantBounds{When: atMost("200"), Uses: 1}, ana))
				before := r.refund.setHanging(true)
				ctx, stop := context.WithCancel(context.Background())
				r.ctx = ctx
				r.refund.onCall = stop
				s, err := r.beginNextRun("k2")
				require.NoError(t, err)
				require.ErrorIs(t, errOf(r.try(0)), context.Canceled)
				r.ctx, r.run = context.Background(), s.Run
				r.refund.setHanging(false)
				want := run.StatusSucceeded
				if revoked {
					require.NoError(t, r.revoke(ana), "used up, it still lets its call run again")
					want = run.StatusFailed
				}
				r.driveRun(0)
				require.Equal(t, want, r.call().Status)
				require.Equal(t, revoked, len(r.refund.paid) == before+1, "the first attempt had paid")
			})
		}
	}
}

// A grant that is revoked, or used up by another, before the claim is committed lets nothing run.
func TestA11RevokedBeforeTheClaim(t *testing.T) {
	for _, under := range policies {
		for _, uses := range []int{0, 5} {
			withBoundedGrant(t, under, &agent.GrantBounds{When: atMost("200"), Uses: uses}, func(t *testing.T, r *fixture) {
				before := len(r.refund.paid)
				hookWrite(r.table, "refund#", func() error { return r.revoke(ana) }, nil)
				require.True(t, r.startRunWithArgs("k2", args))
				require.Equal(t, before, len(r.refund.paid))
			})
		}
	}
}

// A person's denial of the tool in the run wins over the grant as well (scope tool).
func TestA11DeniedToolWinsOverAPattern(t *testing.T) {
	withBoundedGrant(t, replaysTool, &agent.GrantBounds{When: atMost("200")}, func(t *testing.T, r *fixture) {
		r.replies = []agent.Reply{refundReply("c1", `{"amount":300,"to":"x"}`), refundReply("c2", args)}
		require.True(t, r.startNextRun("k2"))
		before := len(r.refund.paid)
		r.must(r.decide(approval.Deny, ana))
		r.resume()
		require.Equal(t, before, len(r.refund.paid))
		s := r.state()
		c, _ := s.Call("c2")
		require.Equal(t, run.WhyDenied, c.Reason)
	})
}

// Bounds are refused with what is wrong, and then nothing is decided.
func TestA11BoundsAreRefused(t *testing.T) {
	past := time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
	type bounds = agent.GrantBounds
	absent := []run.Condition{{Path: "/note", Ne: json.RawMessage(`"no"`)}}
	for want, c := range map[string]struct {
		bounds agent.GrantBounds
		policy func(p *agent.Permission)
	}{
		"grant.when: the arguments of the request itself do not fit /amount lte 99": {bounds{When: atMost("99")}, nil},
		`grant.when: the arguments of the request itself do not fit /note ne "no"`:  {bounds{When: absent}, nil},
		"grant.when[0]: got 0 operators": {
			bounds{When: []run.Condition{{Path: "/amount"}}}, nil,
		},
		"grant.when[0].lte: got a string, want a number": {bounds{When: atMost(`"5"`)}, nil},
		"grant.when: got 11 conditions, want at most 10": {
			bounds{When: make([]run.Condition, 11)}, nil,
		},
		"grant.uses: got -1":                                   {bounds{Uses: -1}, nil},
		"grant.seconds: got less than zero":                    {bounds{Seconds: -1}, nil},
		"grant.seconds: got 2592001, want at most 2592000":     {bounds{Seconds: 2592001}, nil},
		"grant.until: got 1999-12-31T00:00:00Z, which is over": {bounds{Until: past}, nil},
		"grant.until: got 2100-12-31T00:00:00Z, want":          {bounds{Until: past.AddDate(101, 0, 0)}, nil},
		"grant.uses: got 6, want at most 5": {
			bounds{Uses: 6}, func(p *agent.Permission) { p.Bounds.Uses = 5 },
		},
		"grant.seconds: got 61, want at most 60": {
			bounds{Seconds: 61}, func(p *agent.Permission) { p.Bounds.Expires = time.Minute },
		},
		"the agent's policy grants calls with their very arguments alone": {
			bounds{When: atMost("200")}, func(p *agent.Permission) { p.Bounds.Pattern = false },
		},
		"got bounds of a standing grant, and this decision on approval": {bounds{Uses: 1}, func(p *agent.Permission) {
			p.Grants, p.Bounds = agent.GrantsRun, agent.StandingBounds{}
		}},
	} {
		for _, under := range []policyMode{replaysCall, blocksCall} {
			withFixture(t, func(t *testing.T, r *fixture) {
				r.allowStandingGrants(under)
				if c.policy != nil {
					c.policy(&r.def.Permission)
				}
				require.NoError(t, r.def.Check())
				r.startAndPark(args)
				var refused *approval.GrantError
				require.ErrorAs(t, errOf(r.grant(&c.bounds, ana)), &refused)
				require.Contains(t, refused.Problem, want)
				denial := r.request(approval.Deny, ana)
				denial.Grant = &c.bounds
				require.ErrorAs(t, errOf(r.desk().Decide(r.ctx, denial)), &refused)
				require.Contains(t, refused.Problem, "got bounds of a standing grant, and this decision")
				require.Equal(t, approval.Pending, r.approval().Status)
				require.Empty(t, r.listStanding())
			})
		}
	}
}

// What the policy says bounds a grant of which nobody says anything, and what does not fit it is approved for itself
// alone.
func TestA11PolicyBoundsGrants(t *testing.T) {
	withBounds := func(under policyMode, change func(b *agent.StandingBounds), f func(r *fixture)) {
		withFixture(t, func(t *testing.T, r *fixture) {
			r.allowStandingGrants(under)
			change(&r.def.Permission.Bounds)
			require.NoError(t, r.def.Check())
			r.startAndPark(args)
			r.must(r.decide(approval.Approve, ana))
			f(r)
		})
	}
	for _, under := range policies {
		withBounds(under, func(b *agent.StandingBounds) { b.Uses, b.Expires = 1, time.Hour }, func(r *fixture) {
			require.Equal(t, time.Hour, r.listStanding()[0].Expires.Sub(r.listStanding()[0].At))
			require.False(t, r.startRunWithArgs("k2", args))
			require.True(t, r.startRunWithArgs("k3", args))
		})
	}
	for _, under := range []policyMode{replaysTool, replaysCall} {
		withBounds(under, func(b *agent.StandingBounds) { b.When = atMost("50") }, func(r *fixture) {
			r.resume()
			require.Equal(t, []string{args}, r.refund.paid)
			require.Empty(t, r.listStanding())
			require.True(t, r.startRunWithArgs("k2", `{"amount":50,"to":"x"}`))
			r.must(r.decide(approval.Approve, ana))
			require.Len(t, r.listStanding(), 1)
			require.Equal(t, under.scope == agent.ScopeCall, r.startRunWithArgs("k3", `{"amount":49,"to":"x"}`))
		})
	}
}

// There is a bound on the patterns of a tool that hold at a time.
func TestA11TooManyPatterns(t *testing.T) {
	withBoundedGrant(t, replaysTool, &agent.GrantBounds{When: atMost("200")}, func(t *testing.T, r *fixture) {
		it, err := r.table.Query(r.ctx, store.Range{PK: "T#" + tenant + "#GRANT#clerk"})
		require.NoError(t, err)
		for i := range approval.MaxPatterns - 1 {
			other, digest := it.Items[0], fmt.Sprintf("when-%d", i)
			other.SK, other.Body = "refund#"+digest, bytes.ReplaceAll(other.Body, []byte(strings.TrimPrefix(other.SK, "refund#")), []byte(digest))
			require.NoError(t, r.table.Write(r.ctx, store.Op{Kind: store.Put, Item: other}))
		}
		require.True(t, r.startRunWithArgs("k2", `{"amount":300,"to":"x"}`))
		require.ErrorContains(t, errOf(r.grant(&agent.GrantBounds{When: atMost("400")}, ana)), "100 grants of patterns")
		require.Equal(t, approval.Pending, r.approval().Status)
		r.must(r.grant(&agent.GrantBounds{Uses: 1}, ana))
	})
}

// Whatever is granted, used by runs that meet, revoked and left to expire: no grant covers more claims than it has uses, none after it was
// revoked or has expired, and none outside its pattern or against a rule; and what is covered asks nobody.
func TestA11StandingGrantsHold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		under := rapid.SampledFrom(policies).Draw(rt, "policy")
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{"grant", "call", "call", "call", "meet", "revoke", "wait"}).Draw(rt, "do"), amount: rapid.SampledFrom([]int{50, 150, 250, 20000}).Draw(rt, "amount"),
				most: rapid.SampledFrom([]int{0, 100, 200, 300}).Draw(rt, "most"), uses: rapid.IntRange(0, 2).Draw(rt, "uses"), hours: rapid.IntRange(0, 3).Draw(rt, "hours"),
			}
		}), 3, 12).Draw(rt, "steps")
		var problem error
		withFixture(t, func(t *testing.T, r *fixture) {
			r.allowStandingGrants(under)
			problem = (&grantsModel{fixture: r, given: map[string]*modelGrant{}}).play(steps)
		})
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

type step struct {
	do                        string
	amount, most, uses, hours int
}

// modelGrant is a grant in the model of the property test.
type modelGrant struct {
	args    string // "" = whatever fits
	most    int    // 0 = no condition
	left    int    // -1 = not counted
	ends    time.Time
	revoked bool
	digest  string
}

func (g *modelGrant) covers(args string, amount int, now time.Time) bool {
	return !g.revoked && now.Before(g.ends) && g.left != 0 && (g.args == "" || g.args == args) && (g.most == 0 || amount <= g.most)
}

type grantsModel struct {
	*fixture
	given map[string]*modelGrant // by request
	n     int
}

func (m *grantsModel) play(steps []step) error {
	for i, s := range steps {
		var err error
		switch args := fmt.Sprintf(`{"amount":%d,"to":"x"}`, s.amount); s.do {
		case "grant", "call":
			err = m.playCall(args, s)
		case "meet": // two runs at once
			hookWrite(m.table, "refund#", func() error {
				ours := m.run
				inner := m.playCall(args, s)
				m.run = ours
				err = errors.Join(err, inner)
				return nil
			}, nil)
			outer := m.playCall(args, s)
			err = errors.Join(err, outer)
			m.table.Use(nil)
		case "revoke":
			if revoke := m.revoke(boss); revoke != nil && !errors.Is(revoke, approval.ErrNoGrant) {
				err = revoke
			}
			for _, g := range m.given {
				g.revoked = true
			}
		case "wait":
			time.Sleep(time.Duration(s.hours) * time.Hour)
		}
		if err != nil {
			return fmt.Errorf("step %d %+v: %w", i, s, err)
		}
	}
	return nil
}

// playCall has a run call refund. If the run asks and the step grants, it gives the grant.
func (m *grantsModel) playCall(args string, s step) error {
	m.n++
	before := len(m.refund.paid)
	now := m.ports.Clock.Now()
	met := m.n
	asked := m.startRunWithArgs(fmt.Sprintf("k%d", m.n), args)
	paid := m.refund.paid[before:]
	c := m.fixture.call()
	switch {
	case s.amount > 10000:
		if asked || len(paid) > 0 || c.Reason != run.WhyDenied {
			return fmt.Errorf("a denied call: asked %v, paid %v", asked, paid)
		}
		return nil
	case c.Grant != nil:
		g := m.given[c.Grant.Approval]
		if g == nil || !g.covers(args, s.amount, now) {
			return fmt.Errorf("%s ran under %+v, which does not cover it", args, g)
		}
		g.left = max(g.left-1, -1)
		return nil
	}
	for id, g := range m.given {
		if met == m.n && g.covers(args, s.amount, now) {
			return fmt.Errorf("%s was asked about, and %s %+v covers it", args, id, g)
		}
	}
	if s.do != "grant" {
		return nil
	}
	b := &agent.GrantBounds{Uses: s.uses, Seconds: int64(s.hours) * 3600}
	if s.most >= s.amount {
		b.When = atMost(fmt.Sprint(s.most))
	}
	a, err := m.grant(b, ana)
	if err != nil {
		return err
	}
	return m.recordGrant(a, b, args)
}

// recordGrant adds a grant to the model. It replaces a grant with the same digest.
func (m *grantsModel) recordGrant(a approval.Approval, b *agent.GrantBounds, args string) error {
	g := &modelGrant{left: -1, ends: b.Expires(m.ports.Clock.Now())}
	if b.Uses > 0 {
		g.left = b.Uses
	}
	for _, have := range m.listStanding() {
		if have.Approval == a.ID {
			g.digest = have.Digest
		}
	}
	if g.digest == "" {
		return fmt.Errorf("no record of %s", a.ID)
	}
	if len(b.When) > 0 {
		if _, err := fmt.Sscan(string(b.When[0].Lte), &g.most); err != nil {
			return err
		}
	} else if a.Scope != agent.ScopeTool {
		g.args = args
	}
	for id, old := range m.given {
		if old.digest == g.digest {
			delete(m.given, id)
		}
	}
	m.given[a.ID] = g
	return nil
}

// The narrowest of what several people say is what all of them allow.
func TestA11NarrowGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		draw := func(name string) agent.GrantBounds {
			b := agent.GrantBounds{Uses: rapid.IntRange(0, 3).Draw(t, name), Seconds: rapid.Int64Range(0, 3).Draw(t, name)}
			if n := rapid.IntRange(0, 3).Draw(t, name); n > 0 {
				b.When = atMost(fmt.Sprint(n))
			}
			if n := rapid.IntRange(0, 3).Draw(t, name); n > 0 {
				b.Until = at.Add(time.Duration(n) * time.Second)
			}
			return b
		}
		a, b := draw("a"), draw("b")
		n := policy.NarrowGrant(a, b)
		require.True(t, n.Same(policy.NarrowGrant(b, a)))
		require.True(t, n.Same(policy.NarrowGrant(n, a)))
		require.True(t, a.Same(policy.NarrowGrant(a, agent.GrantBounds{})))
		for amount := range 5 {
			args := json.RawMessage(fmt.Sprintf(`{"amount":%d}`, amount))
			require.Equal(t, jsonx.Fits(a.When, args) && jsonx.Fits(b.When, args), jsonx.Fits(n.When, args))
		}
		first := a.Expires(at)
		if b.Expires(at).Before(first) {
			first = b.Expires(at)
		}
		require.Equal(t, first, n.Expires(at))
	})
}

// What is written in words reads the same again.
func TestConditionWords(t *testing.T) {
	for _, words := range []string{
		"/amount lte 50", `/to eq "ana"`, `/to in ["a","b c"]`, `/to matches "^a b"`, "/a/b ne null", "/n gt -1.5e3", `"/a b" gte 0`, "/x lt 9", "/ok eq true",
	} {
		c, err := agent.ParseCondition(words)
		require.NoError(t, err, words)
		require.Equal(t, words, c.Words())
	}
	for _, words := range []string{"", "/a", "/a lte", "/a lte x", "/a is 5", "a lte 5", "/a in 5", "/a in []", "/a matches 5", `/a lte "5"`, "/a eq {}", `"/a lte 5`, "/a lte 5 6", `/a matches "("`} {
		require.Error(t, errOf(agent.ParseCondition(words)), words)
	}
	require.Equal(t, "/a lte 1 and /b eq 2", agent.ConditionWords([]run.Condition{{Path: "/a", Lte: json.RawMessage("1")}, {Path: "/b", Eq: json.RawMessage("2")}}))
	require.False(t, strings.Contains(agent.ConditionWords(nil), "and"))
}
