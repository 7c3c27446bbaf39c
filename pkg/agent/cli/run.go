package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// runCommand starts a run and follows it.
type runCommand struct {
	Agent    string   `arg:"" help:"A directory or file with an agent.yaml, or a registered agent."`
	Input    string   `placeholder:"JSON|@FILE|-" help:"Start from this JSON."`
	Message  string   `placeholder:"TEXT" help:"Start from what a user says."`
	Attach   []string `sep:"none" placeholder:"FILE" help:"Send a file of up to 100 MB along with the message."`
	Key      string   `placeholder:"K" help:"Idempotency key: the same key and request give the same run."`
	Continue string   `placeholder:"RUN" id:"run" help:"Go on with a finished run's conversation."`
	Model    string   `placeholder:"SPEC" help:"script:FILE, openai:MODEL@BASE_URL, bedrock:MODEL_ID or demo, in place of the agent's model."`
	Dir      string   `placeholder:"DIR" help:"Folder the file tools work in, and the programs of MCP servers, in place of the agent's."`
	Yes      bool     `xor:"verdict" help:"Approve everything."`
	No       bool     `xor:"verdict" help:"Deny everything."`
}

func (c *runCommand) run(ctx context.Context, p *program) error {
	start, uploads, err := c.start(p)
	if err != nil {
		return err
	}
	return p.with(ctx, true, func(s *session) error {
		if err := s.bring(ctx, uploads); err != nil {
			return err
		}
		return s.launch(ctx, func(ctx context.Context, cl *api.Client) (api.Accepted, error) { return cl.Start(ctx, start) }, c.asker(s))
	})
}

// launch starts a run and follows it. Ask is who decides meanwhile; nil = nobody here.
func (s *session) launch(ctx context.Context, start func(context.Context, *api.Client) (api.Accepted, error), ask asker) error {
	begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether there is a run
	run, err := call(begun, s, func(cl *api.Client) (api.Accepted, error) { return start(begun, cl) })
	if err != nil {
		return err
	}
	r, err := s.attend(ctx, api.Run{ID: run.ID}, ask)
	if err != nil {
		return s.left(ctx, run.ID, err)
	}
	return s.p.closing(ctx, s, r)
}

// start is the request and the files it needs, read and checked before anything is opened.
func (c *runCommand) start(p *program) (api.Start, []upload, error) {
	said := c.Message != "" || len(c.Attach) > 0
	if said == (c.Input != "") {
		return api.Start{}, nil, usage("run: want --input, or --message and --attach")
	}
	def, err := p.agent(c.Agent, chosen{model: c.Model, dir: c.Dir})
	if err != nil {
		return api.Start{}, nil, err
	}
	s := api.Start{Definition: def, Key: c.Key, Continues: c.Continue}
	if s.Key == "" { // made here, so that the request can be repeated
		s.Key = ids.System(p.clock).Key()
	}
	if c.Input != "" {
		s.Input, err = p.value("--input", c.Input)
		return s, nil, err
	}
	m, err := message(c.Message, c.Attach)
	s.Message = m.message
	return s, m.uploads, err
}

// asker is who decides while the run is followed; nil = nobody here.
func (c *runCommand) asker(s *session) asker {
	switch {
	case c.Yes:
		return s.always(approval.Approve, "--yes")
	case c.No:
		return s.always(approval.Deny, "--no")
	default:
		return s.terminal()
	}
}

// terminal is the person at the terminal; nil = there is none.
func (s *session) terminal() asker {
	if !s.p.terminal {
		return nil
	}
	return s.ask
}

// attend follows a run to its end, and asks about every request on the way, those of the runs below it as well. It returns early where all
// of them wait for somebody else, or for later.
func (s *session) attend(ctx context.Context, r api.Run, ask asker) (api.Run, error) {
	f, k := s.follow(r), newKin(s)
	later := map[string]bool{}
	for {
		r, err := f.untilRest(ctx)
		if err != nil || r.Status == run.RunDone {
			return r, err
		}
		all, err := s.family(ctx, r)
		if err != nil {
			return r, err
		}
		k.tell(all)
		goesOn, err := s.consultAll(ctx, all, later, ask)
		if err == nil && !goesOn {
			goesOn, err = k.move(ctx, all)
		}
		if err != nil || !goesOn {
			return r, err
		}
	}
}

// consultAll asks about every request that is open in a family and was not left for later. It reports whether one was decided.
func (s *session) consultAll(ctx context.Context, all family, later map[string]bool, ask asker) (decided bool, err error) {
	if ask == nil {
		return false, nil
	}
	for _, r := range all.open {
		for _, w := range r.Waiting {
			if later[w.Approval] || w.For != run.ForApproval && w.For != run.ForInput {
				continue
			}
			done, err := s.consult(ctx, w.Approval, ask)
			if err != nil {
				return decided, err
			}
			decided, later[w.Approval] = decided || done, !done
		}
	}
	return decided, nil
}

// consult asks about one request until it is decided, by this person or by another, or left for later.
func (s *session) consult(ctx context.Context, id string, ask asker) (decided bool, err error) {
	for {
		a, err := call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, id) })
		if err != nil || a.Status != approval.Pending {
			return err == nil, err
		}
		v, err := ask(ctx, a)
		if err != nil || v == nil {
			return false, err
		}
		v.Digest = a.Digest
		a, err = call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Decide(ctx, id, *v) })
		var refused *api.Problem
		switch {
		case err == nil && takesMore(a, *v):
			s.p.note("approval %s: %s", a.ID, progressOf(a))
			return false, nil
		case !errors.As(err, &refused):
			return err == nil, err
		}
		s.p.note("countersign: %s", lines(refused.Detail))
		switch refused.Type {
		case api.EditRefused: // there may be a better edit
			if v.Action != approval.Edit { // of a flag: an answer that takes the arguments' place would be the same again
				return false, nil
			}
		case api.RequestChanged: // it is shown again
		case api.NotLinked:
			return false, err
		case api.AlreadyDecided, api.ApprovalExpired, api.RunFinished, api.PolicyChanged:
			return true, nil
		default:
			return false, nil
		}
	}
}

// left shows a run that is not followed any more because the person stopped us, and how it goes on.
func (s *session) left(ctx context.Context, run string, err error) error {
	if !canceled(ctx, err) {
		return err
	}
	s.p.leaves(run)
	if !s.p.json {
		return err
	}
	still := context.WithoutCancel(ctx)
	r, lookErr := call(still, s, func(c *api.Client) (api.Run, error) { return c.Run(still, run) })
	if lookErr == nil {
		lookErr = s.p.document(r)
	}
	return errors.Join(err, lookErr)
}

func (p *program) leaves(run string) {
	p.note("\nrun %s is left as it is; %s carries it on, %s ends it", run, p.hint("resume"), p.hint("cancel", run))
}

// closing shows how a run ended or what it waits for, and gives the exit code.
func (p *program) closing(ctx context.Context, s *session, r api.Run) error {
	if r.Status == run.RunWaiting {
		if err := s.waits(ctx, r); err != nil {
			return err
		}
	} else {
		p.ended(r)
	}
	if p.json {
		whole, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, r.ID) })
		if err != nil {
			return err
		}
		if err := p.document(whole); err != nil {
			return err
		}
	}
	return codeOfRun(r)
}

// waits names what a run waits for, and what those below it do.
func (s *session) waits(ctx context.Context, r api.Run) error {
	all, err := s.family(ctx, r)
	if err != nil {
		return err
	}
	for _, open := range all.open {
		if err := s.waitsOf(ctx, open, all); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) waitsOf(ctx context.Context, r api.Run, all family) error {
	for _, w := range r.Waiting {
		if byAgent(w) {
			for _, below := range slices.Concat(all.done, all.open) {
				if below.ID == w.Run {
					s.p.say("run %s waits for run %s of agent %s (%s)", r.ID, below.ID, line(below.Agent), w.Call)
				}
			}
			continue
		}
		if w.For == run.ForAnswer {
			if err := s.unanswered(ctx, r.ID, w); err != nil {
				return err
			}
			continue
		}
		a, err := call(ctx, s, func(c *api.Client) (approval.Approval, error) { return c.Approval(ctx, w.Approval) })
		if err != nil {
			return err
		}
		s.p.waits(a)
	}
	return nil
}

// unanswered names a service that was asked, with what, and the commands that answer for it.
func (s *session) unanswered(ctx context.Context, run string, w api.Waiting) error {
	r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, run) }) // one that is followed comes without its calls
	if err != nil {
		return err
	}
	p := s.p
	p.say("run %s waits for an answer of %s (%s) until %s:", r.ID, line(toolOf(r, w.Call)), w.Call, stamp(w.Expires))
	p.say("  %s", p.hint("answer", r.ID, w.Call, "--result", "JSON"))
	p.say("  %s", p.hint("answer", r.ID, w.Call, "--error", "TEXT"))
	return nil
}

// toolOf is the original name of a call's tool; its id where the run's newest calls do not have it.
func toolOf(r api.Run, id string) string {
	for _, c := range r.Calls {
		if c.ID == id {
			return c.Tool
		}
	}
	return id
}

// delegated says of a request below another run which agent asks, and for which run.
func delegated(a approval.Approval) string {
	if a.Root == "" {
		return ""
	}
	return fmt.Sprintf(" of agent %s, for run %s,", line(a.Agent), a.Root)
}

// waits names a request and the commands that answer it.
func (p *program) waits(a approval.Approval) {
	what := "approval " + a.ID + " of"
	switch a.Kind {
	case approval.KindOutcome:
		what = "word on what became of"
	case approval.KindInput:
		what = "input " + a.ID + " for"
	}
	p.say("run %s%s waits for %s %s (%s) until %s:", a.Run, delegated(a), what, line(strings.Join(a.Tools, ", ")), strings.Join(a.Calls, ", "), stamp(a.ExpiresAt))
	for _, way := range p.ways(a) {
		p.say("  %s", way)
	}
}

func (p *program) ended(r api.Run) {
	switch {
	case r.Error != nil:
		p.note("run %s ended in error: %s: %s", r.ID, r.Error.Code, lines(r.Error.Message))
	case r.Reason == run.ReasonCancelled:
		p.note("run %s was cancelled", r.ID)
	}
	if out := output(r.Output); out != "" {
		p.say("%s", out)
	}
}
