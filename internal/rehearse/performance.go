package rehearse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store/memory"
)

// performance is one answer to one wait of a run.
type performance struct {
	*Rehearsal
	run    string
	wait   Wait
	asked  *approval.Approval // nil = there is no request: a service is asked
	answer string
}

// outcome is what came of it.
type outcome struct {
	did      []string // in order
	calls    map[string]agent.Call
	problems []string
}

func (o outcome) String() string {
	if len(o.did) == 0 {
		return "nothing happens"
	}
	return strings.Join(o.did, ", then ")
}

// voids reports whether the call is refused for good, or has failed before it ran.
func (o outcome) voids(call string) bool {
	c, ok := o.calls[call]
	return ok && (c.Reason == agent.WhyDenied || c.Reason == agent.WhyVoided)
}

// maxSteps is how many turns of tasks and moves of time a rehearsal may take.
const maxSteps = 20_000

// stage is the product in memory, with nobody around it.
type stage struct {
	performance
	clock   *clock.Virtual
	machine *local.Machine
	trouble error // of a function
	curtain clock.Signal
	acted   bool
	over    bool
	out     outcome
}

// play goes on with a copy of the run, with what is deployed of agents beside what it is pinned to; nil = with that alone.
func (p performance) play(ctx context.Context, current runtime.Agents) (outcome, error) {
	v := clock.NewVirtual(p.Now)
	v.SetLimit(maxSteps)
	st := &stage{performance: p, clock: v, curtain: v.NewSignal(), out: outcome{calls: map[string]agent.Call{}}}
	remotes := runtime.Remotes{}
	for _, kind := range []agent.ToolKind{agent.KindMCP, agent.KindHTTP, agent.KindLambda} {
		remotes[kind] = away{st}
	}
	ended, err := p.ended(ctx)
	if err != nil {
		return outcome{}, err
	}
	st.machine, err = local.New(local.Config{
		Table: newOverlay(p.Table), Blobs: blobsOver{p.Blobs, memory.NewBlobs()}, Model: nobody{st}, Tools: shown{st}, Hooks: p.Hooks, Agents: p.Agents, Current: current,
		Clock: v, IDs: ids.Seeded(v, 1), Executions: ended, Remotes: remotes, Functions: away{st}, Emit: away{st},
		Trouble: func(_ string, err error) { st.trouble = err },
	})
	if err != nil {
		return outcome{}, err
	}
	v.SetIdle(st.idle)
	var failed error
	if err := v.Run(func() {
		if failed = st.machine.Engine.Resume(ctx); failed == nil {
			failed = st.act(ctx)
		}
	}); err != nil {
		return outcome{}, fmt.Errorf("it does not come to rest: %w", err)
	}
	return st.out, failed
}

// ended is the execution that the run waits by, as one that was stopped: the copy of the run goes on by another, and is not taken for a table that
// was restored without its executions.
func (p performance) ended(ctx context.Context) (*asl.MemoryStore, error) {
	l, err := p.journal().Load(ctx, p.Tenant, p.run)
	if err != nil {
		return nil, err
	}
	executions := &asl.MemoryStore{}
	return executions, executions.Save(ctx, asl.Record{Name: l.State.Owner, Status: asl.Aborted, StartDate: p.Now, StopDate: p.Now})
}

// act takes the run over, gives the answer, and waits until it has come to rest.
func (s *stage) act(ctx context.Context) error {
	if _, err := s.machine.Sweeper.Repair(ctx, s.Tenant, s.run); err != nil {
		return fmt.Errorf("the run cannot be carried on: %w", err)
	}
	if err := s.parked(ctx); err != nil {
		return err
	}
	s.acted = true
	if err := s.say(ctx); err != nil {
		s.did("the answer is refused: %v", err)
		s.problem("the answer is refused: %v", err)
		return nil
	}
	if err := s.curtain.Wait(ctx, 0); err != nil {
		return err
	}
	return s.look(ctx)
}

// parked waits until the run can be woken.
func (s *stage) parked(ctx context.Context) error {
	for range 60 {
		h, err := s.machine.Ports.Journal.Head(ctx, s.Tenant, s.run)
		if err != nil {
			return err
		}
		if h.Status == agent.RunWaiting && h.Token != "" && s.own(h.Token) {
			return nil
		}
		if err := s.clock.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	if s.trouble != nil {
		return fmt.Errorf("the run cannot be carried on: %w", s.trouble)
	}
	return errors.New("the run cannot be carried on: it does not wait where it did")
}

// own reports whether the task token is one of this stage's executions, and not what the store had.
func (s *stage) own(token string) bool {
	it, found, err := s.Table.Get(context.Background(), runHead(s.Tenant, s.run))
	return err != nil || !found || it.Attrs["token"].String() != token
}

// say gives the answer.
func (s *stage) say(ctx context.Context) error {
	switch {
	case s.answer == "expire":
		s.clock.AdvanceTo(s.wait.Expires.Add(time.Second))
		return nil
	case s.answer == "approve", s.answer == "deny":
		return s.decide(ctx, approval.Action(s.answer))
	case s.wait.For == string(agent.ForAnswer):
		return s.machine.Inputs.Answer(ctx, runtime.Answer{Tenant: s.Tenant, Run: s.run, Call: s.wait.Call, Content: rehearsed, By: "service"})
	default:
		return s.settle(ctx)
	}
}

// decide is the word of as many people as it takes.
func (s *stage) decide(ctx context.Context, a approval.Action) error {
	people, most := deciders(*s.asked, s.clock.Now()), 1
	if a == approval.Approve {
		most = max(1, s.asked.Quorum)
	}
	if len(people) < most {
		return fmt.Errorf("it takes %d people, and %d may decide", most, len(people))
	}
	for _, by := range people[:most] {
		_, err := s.machine.Desk.Decide(ctx, approval.Request{Tenant: s.Tenant, ID: s.asked.ID, Action: a, By: by})
		var answer *agent.AnswerError
		switch {
		case errors.Is(err, approval.ErrPolicyChanged): // that it is asked again is seen by looking
			return nil
		case errors.As(err, &answer): // an answer of a form that nobody knows here
			s.did("an answer of the form that the tool asks for is taken")
			s.over = true
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// settle says what became of a call whose outcome is unknown, by as many people as running it again takes.
func (s *stage) settle(ctx context.Context) error {
	people, most := deciders(*s.asked, s.clock.Now()), 1
	if s.answer == "rerun" {
		most = max(1, s.asked.Quorum)
	}
	if len(people) < most {
		return fmt.Errorf("it takes %d people, and %d may say so", most, len(people))
	}
	for _, by := range people[:most] {
		o := approval.Outcome{Tenant: s.Tenant, Run: s.run, Call: s.wait.Call, ID: s.asked.ID, By: by, Rerun: s.answer == "rerun"}
		if !o.Rerun {
			o.Content = rehearsed
		}
		if _, err := s.machine.Desk.Settle(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// deciders are people who could decide a request: those that are named, and as many members of its groups as it takes.
func deciders(a approval.Approval, now time.Time) []agent.Principal {
	own, above := a.Deciders(now)
	var groups, users []string
	for _, set := range append([][]string{own}, above...) {
		for _, p := range set {
			if strings.HasPrefix(p, "group:") {
				groups = append(groups, p)
			} else {
				users = append(users, p)
			}
		}
	}
	for i := range max(1, a.Quorum) {
		users = append(users, fmt.Sprintf("user:rehearsal-%d", i+1))
	}
	var out []agent.Principal
	for _, id := range slices.Compact(users) {
		p := agent.Principal{ID: id, Groups: groups}
		if a.MayDecide(p, now) && (!a.FourEyes || !slices.Contains(a.Requesters, id)) {
			out = append(out, p)
		}
	}
	return out
}

// idle ends the rehearsal once the run rests behind the answer.
func (s *stage) idle() bool {
	if !s.acted || s.over {
		return s.end(s.over)
	}
	l, err := s.machine.Ports.Journal.Load(context.Background(), s.Tenant, s.run)
	rests := err == nil && len(l.Inbox) == 0 && (l.State.Status == agent.RunDone || l.State.Status == agent.RunWaiting && !s.due(&l.State))
	return s.end(rests)
}

func (s *stage) end(over bool) bool {
	if over {
		s.curtain.Notify()
	}
	return over
}

// due reports whether something that the run waits for has run out: then it moves by itself.
func (s *stage) due(st *agent.AgentState) bool { return !s.clock.Now().Before(st.EarliestExpiry()) }

// look says where the run has come to.
func (s *stage) look(ctx context.Context) error {
	l, err := s.machine.Ports.Journal.Load(ctx, s.Tenant, s.run)
	if err != nil {
		return err
	}
	st := &l.State
	for _, c := range st.Calls() {
		s.out.calls[c.ID] = c
	}
	s.fate()
	switch {
	case s.over: // a model was about to be asked
	case st.Status == agent.RunDone && st.Reason == agent.ReasonError && st.Error != nil:
		s.did("the run ends in error: %s", agent.Bounded(st.Error.Message))
		s.problem("the run ends in error: %s", agent.Bounded(st.Error.Message))
	case st.Status == agent.RunDone:
		s.did("the run ends: %s", st.Reason)
	case st.Status == agent.RunWaiting:
		s.waitsAgain(ctx, st)
	case s.trouble != nil:
		return fmt.Errorf("the run cannot be carried on: %w", s.trouble)
	}
	return nil
}

// fate says first what became of the call that the answer is about, where it did not run.
func (s *stage) fate() {
	c, ok := s.out.calls[s.wait.Call]
	if !ok || !c.Status.Terminal() || c.Reason == "" {
		return
	}
	s.out.did = slices.Insert(s.out.did, 0, fmt.Sprintf("call %s is not carried out (%s)", c.ID, c.Reason))
}

// waitsAgain says for what, and whether anybody can end that.
func (s *stage) waitsAgain(ctx context.Context, st *agent.AgentState) {
	var left []string
	for _, c := range st.Waits() {
		switch {
		case c.ID != s.wait.Call || c.Wait.Approval == s.wait.Approval:
			left = append(left, c.ID)
		case c.Wait.For == agent.ForApproval && s.wait.For == string(agent.ForApproval):
			s.did("people are asked about call %s again, under the new policy", c.ID)
		default:
			s.did("people are asked about call %s: %s", c.ID, c.Wait.For)
		}
		if c.Wait.Approval != "" {
			s.decidable(ctx, c.ID, c.Wait.Approval)
		}
	}
	for _, r := range st.OpenRequests() {
		left = append(left, r.First())
		s.decidable(ctx, r.First(), r.Approval)
	}
	if len(left) > 0 {
		s.did("the run goes on waiting for %s", strings.Join(left, ", "))
	}
}

// decidable looks whether there is anybody who may decide a request.
func (s *stage) decidable(ctx context.Context, call, id string) {
	a, err := approval.Get(ctx, s.machine.Ports.Table, s.Tenant, id)
	if err != nil {
		s.problem("the request about call %s cannot be read: %v", call, err)
		return
	}
	if n := len(deciders(a, s.clock.Now())); n < max(1, a.Quorum) {
		s.problem("the request about call %s takes %d people, and %d may decide it", call, max(1, a.Quorum), n)
	}
}

func (s *stage) did(format string, args ...any) {
	s.out.did = append(s.out.did, fmt.Sprintf(format, args...))
}

func (s *stage) problem(format string, args ...any) {
	s.out.problems = append(s.out.problems, fmt.Sprintf(format, args...))
}

// rehearsed is what whoever is asked in a rehearsal answers.
const rehearsed = "(rehearsed)"

// maxShown is how much of arguments is shown, in bytes.
const maxShown = 200

// runs notes that a tool would be entered.
func (s *stage) runs(name string, args json.RawMessage) {
	text := string(args)
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	s.did("%s runs with %s", name, text)
}
