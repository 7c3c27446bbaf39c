package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

type approveCommand struct {
	ID     string `arg:"" id:"approval" help:"The approval."`
	Edit   string `placeholder:"JSON|@FILE|-" help:"Run with these arguments instead."`
	Result string `placeholder:"JSON|@FILE|-" help:"Answer what the tool asks with this. Without it the answer is true."`
	Note   string `placeholder:"T" help:"Kept with the decision."`
	Tool   string `placeholder:"NAME" help:"Of a request about several tools: this one alone."`
	Digest string `placeholder:"D" help:"What was seen: where the request is about something else by now, nothing is approved. Needed once somebody has edited it."`

	grantFlags
}

func (c *approveCommand) run(ctx context.Context, p *program) error {
	v := api.Verdict{Action: approval.Approve, Note: c.Note, Tool: c.Tool, Digest: c.Digest}
	var err error
	if v.Grant, err = c.bounds(); err != nil {
		return err
	}
	switch {
	case c.Edit != "" && c.Result != "":
		return usage("approve: want --edit or --result, not both")
	case c.Edit != "":
		v.Action = approval.Edit
		v.Args, err = p.value("--edit", c.Edit)
	case c.Result != "":
		v.Result, err = p.value("--result", c.Result)
	}
	if err != nil {
		return err
	}
	return p.decide(ctx, c.ID, v)
}

type denyCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `placeholder:"T" help:"Told to the model."`
	Tool string `placeholder:"NAME" help:"Of a request about several tools: this one alone."`
}

func (c *denyCommand) run(ctx context.Context, p *program) error {
	return p.decide(ctx, c.ID, api.Verdict{Action: approval.Deny, Note: c.Note, Tool: c.Tool})
}

// decide records a decision and carries the run on.
func (p *program) decide(ctx context.Context, id string, v api.Verdict) error {
	return p.existing(ctx, func(s *session) error {
		a, err := call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, id) })
		if err != nil {
			return err
		}
		p.tellDecisions(a)
		if v.Action == approval.Edit {
			if v.Args, err = s.restored(ctx, a, v.Args); err != nil {
				return err
			}
		}
		run, err := s.followed(ctx, a.Run)
		if err != nil {
			return err
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was done
		if a, err = call(begun, s, func(c *api.Client) (approval.Approval, error) { return c.Decide(begun, id, v) }); err != nil {
			return err
		}
		if takesMore(a, v) {
			s.p.note("approval %s: %s", a.ID, progressOf(a))
			return p.closing(ctx, s, run)
		}
		return s.attended(ctx, run)
	})
}

// tellDecisions says who has decided what about a request that is decided already.
func (p *program) tellDecisions(a approval.Approval) {
	if a.Status == approval.Pending {
		return
	}
	p.note("approval %s of %s (%s) was decided before:", a.ID, line(strings.Join(a.Tools, ", ")), strings.Join(a.Calls, ", "))
	for _, d := range a.Decisions {
		with := ""
		if d.Action == approval.Edit {
			with = " with other arguments"
		}
		p.note("%-8s %s%s by %s at %s%s", "decided", d.Action, with, d.By, stamp(d.At), noteOf(d.Note))
	}
	if len(a.Decisions) == 0 {
		p.note("%-8s %s, by nobody's decision", "decided", a.Status)
	}
}

// restored puts what is masked back into edited arguments, where its placeholders stand.
func (s *session) restored(ctx context.Context, a approval.Approval, edited json.RawMessage) (json.RawMessage, error) {
	seen, err := s.views().of(ctx, a)
	if err != nil {
		return nil, err
	}
	args, err := show.Restore(edited, a.Args, seen.Schema(a))
	if err != nil {
		return nil, usage("--edit: %v", err)
	}
	return args, nil
}

// act does something to a run and follows it from there until it is done or waits again.
func (s *session) act(ctx context.Context, run string, do func(context.Context, *api.Client) error) error {
	before, err := s.followed(ctx, run)
	if err != nil {
		return err
	}
	begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was done
	_, err = call(begun, s, func(c *api.Client) (struct{}, error) { return struct{}{}, do(begun, c) })
	if err != nil {
		return err
	}
	return s.attended(ctx, before)
}

// attended follows a run until it is done or waits again, and says how it stands.
func (s *session) attended(ctx context.Context, before api.Run) error {
	r, err := s.attend(ctx, before, nil)
	if err != nil {
		return s.left(ctx, before.ID, err)
	}
	return s.p.closing(ctx, s, r)
}

// takesMore reports whether a request waits for more people after an approval: nobody's run has heard of it.
func takesMore(a approval.Approval, v api.Verdict) bool {
	if a.Status != approval.Pending || v.Action == approval.Deny {
		return false
	}
	if a.Kind != approval.KindTools {
		return true
	}
	return slices.ContainsFunc(a.Permissions, func(p approval.Permission) bool {
		return p.Verdict == "" && (v.Tool == "" || v.Tool == p.Tool || v.Tool == p.Name)
	})
}

// progressOf says how many of the people whom a request takes have approved it, and who.
func progressOf(a approval.Approval) string {
	if a.Kind != approval.KindTools {
		return approvedBy(a.CountedApprovals(), a.Quorum)
	}
	var each []string
	for i, p := range a.Permissions {
		if p.Verdict == "" && p.Quorum > 1 {
			each = append(each, line(p.Tool)+": "+approvedBy(a.ToolApprovals(i), p.Quorum))
		}
	}
	return strings.Join(each, "; ")
}

func approvedBy(counted []approval.Decision, of int) string {
	who := make([]string, len(counted))
	for i, d := range counted {
		who[i] = d.By
	}
	if len(who) == 0 {
		return fmt.Sprintf("%d people have to approve, nobody has yet", of)
	}
	return fmt.Sprintf("%d of %d have approved: %s", len(who), of, strings.Join(who, ", "))
}

// followed is the run to follow where something is done to a run: that one, or, while it is open, the one that nobody delegated.
func (s *session) followed(ctx context.Context, runID string) (api.Run, error) {
	r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, runID) })
	if err != nil || r.Root == "" {
		return r, err
	}
	root, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, r.Root) })
	if err != nil || root.Status != run.RunDone {
		return root, err
	}
	return r, nil
}

type answerCommand struct {
	Run    string  `arg:"" id:"run" help:"The run."`
	Call   string  `arg:"" id:"call" help:"The call, or the request that asks what became of it."`
	Result *string `xor:"answer" placeholder:"JSON|@FILE|-" help:"The service's answer, or what its tool asks; or it took effect, with this result."`
	Error  *string `xor:"answer" placeholder:"TEXT" help:"It failed, like this."`
	Rerun  bool    `xor:"answer" help:"Carry it out again."`
}

func (c *answerCommand) run(ctx context.Context, p *program) error {
	a := api.Answer{Call: c.Call, Error: c.Error, Rerun: c.Rerun}
	if c.Result != nil {
		var err error
		if a.Result, err = p.value("--result", *c.Result); err != nil {
			return err
		}
	}
	if a.Result == nil && a.Error == nil && !a.Rerun {
		return usage("answer: want --result, --error or --rerun")
	}
	key := ids.System(p.clock).Key()
	return p.existing(ctx, func(s *session) error {
		if err := s.name(ctx, c.Run, &a); err != nil {
			return err
		}
		return s.input(ctx, c.Run, api.Input{Answers: []api.Answer{a}}, key)
	})
}

// name puts the request into an answer that says what became of a call, by the call's name or its own: sent again, the answer is to no other.
func (s *session) name(ctx context.Context, runID string, a *api.Answer) error {
	r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, runID) })
	if err != nil {
		return err
	}
	for _, w := range r.Waiting {
		if w.For == run.ForOutcome && (a.Call == w.Call || a.Call == w.Approval) {
			a.Call, a.Approval = w.Call, w.Approval
			return nil
		}
	}
	asked, err := call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, a.Call) })
	var none *api.Problem
	switch {
	case errors.As(err, &none) && none.Type == api.ApprovalNotFound: // the name of a call that waits for no such answer
		return nil
	case err != nil:
		return err
	}
	a.Call, a.Approval = asked.Call(), asked.ID
	return nil
}

type sendCommand struct {
	Run     string   `arg:"" id:"run" help:"The run."`
	Message string   `placeholder:"T" help:"What to say."`
	Attach  []string `sep:"none" placeholder:"FILE" help:"Send a file of up to 100 MB along."`
}

func (c *sendCommand) run(ctx context.Context, p *program) error {
	if c.Message == "" && len(c.Attach) == 0 {
		return usage("send: want --message")
	}
	m, err := message(c.Message, c.Attach)
	if err != nil {
		return err
	}
	return p.input(ctx, c.Run, api.Input{Messages: []json.RawMessage{m.message}}, m.uploads...)
}

// input sends an input and before it the files that it names, once however often the engine moves meanwhile, and carries the run on.
func (p *program) input(ctx context.Context, run string, in api.Input, uploads ...upload) error {
	key := ids.System(p.clock).Key()
	return p.existing(ctx, func(s *session) error {
		if err := s.bring(ctx, uploads); err != nil {
			return err
		}
		return s.input(ctx, run, in, key)
	})
}

func (s *session) input(ctx context.Context, runID string, in api.Input, key string) error {
	return s.act(ctx, runID, func(ctx context.Context, c *api.Client) error {
		got, err := c.Input(ctx, runID, in, key)
		switch {
		case err != nil:
		case got.Already:
			s.p.note("run %s was told that already: nothing was changed", runID)
		case got.Applied == nil || *got.Applied:
		case got.Status == run.RunDone:
			s.p.note("run %s had ended: nothing was changed", runID)
		default:
			s.p.note("run %s waits for no such answer any more: nothing was changed", runID)
		}
		return err
	})
}

type cancelCommand struct {
	Run  string `arg:"" id:"run" help:"The run."`
	Note string `placeholder:"T" help:"Why."`
}

// run ends with 0 when the run has ended, since that is what was asked for.
func (c *cancelCommand) run(ctx context.Context, p *program) error {
	return p.existing(ctx, func(s *session) error {
		if _, err := call(ctx, s, func(cl *api.Client) (api.Accepted, error) { return cl.Cancel(ctx, c.Run, c.Note) }); err != nil {
			return err
		}
		r, err := call(ctx, s, func(cl *api.Client) (api.Run, error) { return cl.Run(ctx, c.Run) })
		if err != nil {
			return err
		}
		p.say("run %s: %s, %s", r.ID, r.Status, r.Reason)
		if p.json {
			return p.document(r)
		}
		return nil
	})
}

type resumeCommand struct{}

// resumed is the JSON document of resume.
type resumed struct {
	Runs []api.Run `json:"runs"`
}

func (*resumeCommand) run(ctx context.Context, p *program) error {
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			p.say("nothing is open")
			return p.answer(resumed{Runs: []api.Run{}})
		}
		open, err := s.open(ctx) // before anything goes on: what has ended by the time all goes on was open, too
		if err != nil {
			return err
		}
		if s.carry = true; s.engine != nil {
			if err := s.engine.ready(ctx); err != nil {
				return err
			}
		}
		doc, worst := resumed{Runs: []api.Run{}}, error(nil)
		for _, id := range open {
			r, err := s.carryOn(ctx, id)
			if canceled(ctx, err) {
				p.leaves(id)
				return errors.Join(err, p.answer(doc))
			}
			if still := stalledError(""); errors.As(err, &still) { // the other runs go on
				p.note("countersign: %s", lines(err.Error()))
				worst = exit(exitFailed)
				continue
			}
			if err != nil {
				return err
			}
			doc.Runs = append(doc.Runs, r)
			worst = worse(worst, codeOfRun(r))
		}
		if len(open) == 0 {
			p.say("nothing is open")
		}
		if p.json {
			if err := p.document(doc); err != nil {
				return err
			}
		}
		return worst
	})
}

// open are the ids of all runs that are not done, the oldest first.
func (s *session) open(ctx context.Context) ([]string, error) {
	var out []string
	for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting} {
		heads, err := s.runs(ctx, api.RunQuery{Status: string(status)})
		if err != nil {
			return nil, err
		}
		for i := len(heads) - 1; i >= 0; i-- {
			out = append(out, heads[i].ID)
		}
	}
	return out, nil
}

func (s *session) carryOn(ctx context.Context, id string) (api.Run, error) {
	r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, id) })
	if err != nil {
		return r, err
	}
	s.p.note("%-8s %s of agent %s", "run", r.ID, line(r.Agent))
	r, err = s.attend(ctx, r, nil)
	if err != nil {
		return r, err
	}
	if r.Status == run.RunDone {
		s.p.say("run %s: %s", r.ID, r.Reason)
		s.p.ended(r)
		return r, nil
	}
	return r, s.waits(ctx, r)
}

// worse is the exit of several runs: an end in error before a wait, a wait before none.
func worse(a, b error) error {
	if a == nil || errors.Is(b, exit(exitFailed)) {
		return b
	}
	return a
}
