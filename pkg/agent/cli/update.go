package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

type approveCommand struct {
	ID     string `arg:"" id:"approval" help:"The approval."`
	Edit   string `placeholder:"JSON|@FILE|-" help:"Run with these arguments instead."`
	Result string `placeholder:"JSON|@FILE|-" help:"Answer what the tool asks with this. Without it the answer is true."`
	Note   string `placeholder:"T" help:"Kept with the decision."`
	Tool   string `placeholder:"NAME" help:"Of a request about several tools: this one alone."`
	Digest string `placeholder:"D" help:"What was seen. Needed once somebody has edited the request."`

	grantFlags
}

func (c *approveCommand) run(ctx context.Context, p *program) error {
	v := web.Verdict{Action: approval.Approve, Note: c.Note, Tool: c.Tool, Digest: c.Digest}
	var err error
	if v.Grant, err = c.parseBounds(); err != nil {
		return err
	}
	switch {
	case c.Edit != "" && c.Result != "":
		return usageErrorf("approve: want --edit or --result, not both")
	case c.Edit != "":
		v.Action = approval.Edit
		v.Args, err = p.readJSONArg("--edit", c.Edit)
	case c.Result != "":
		v.Result, err = p.readJSONArg("--result", c.Result)
	}
	if err != nil {
		return err
	}
	return c.inFlags(p.decide(ctx, c.ID, v), v.Grant)
}

type denyCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `placeholder:"T" help:"Told to the model."`
	Tool string `placeholder:"NAME" help:"Of a request about several tools: this one alone."`
}

func (c *denyCommand) run(ctx context.Context, p *program) error {
	return p.decide(ctx, c.ID, web.Verdict{Action: approval.Deny, Note: c.Note, Tool: c.Tool})
}

func (p *program) decide(ctx context.Context, id string, v web.Verdict) error {
	return p.withExistingStore(ctx, "", func(s *session) error {
		a, err := s.loadApproval(ctx, id)
		if err != nil {
			return err
		}
		if err := s.carryOn(ctx, a.Run); err != nil {
			return err
		}
		p.printDecisions(a)
		if v.Action == approval.Edit {
			view, err := s.newDefinitionCache().loadView(ctx, a)
			if err != nil {
				return err
			}
			// The masked values go back where the edited arguments still have placeholders.
			if v.Args, err = people.RestoreArguments(v.Args, a.Args, view.Schema(a)); err != nil {
				return usageErrorf("--edit: %v", err)
			}
		}
		run, err := s.loadRunToFollow(ctx, a.Run)
		if err != nil {
			return err
		}
		if a, err = s.sendDecision(ctx, id, v); err != nil {
			return err
		}
		if needsMoreApprovals(a, v) {
			s.p.printQuorum(a)
			return s.reportRun(ctx, run)
		}
		return s.followAndReport(ctx, run, nil)
	})
}

func (p *program) printDecisions(a approval.Approval) {
	if a.Status == approval.Pending {
		return
	}
	p.logLine("approval %s of %s (%s) was decided before:", a.ID, line(strings.Join(a.Tools, ", ")),
		strings.Join(a.Calls, ", "))
	for _, d := range a.Decisions {
		with := ""
		if d.Action == approval.Edit {
			with = " with other arguments"
		}
		p.logLine("%-8s %s%s by %s at %s%s", "decided", d.Action, with, d.By, p.stamp(d.At), noteSuffix(d.Note))
	}
	if len(a.Decisions) == 0 {
		p.logLine("%-8s %s, by nobody's decision", "decided", a.Status)
	}
}

// needsMoreApprovals reports whether the request still waits for more approvers. The run does not continue until they
// decide.
func needsMoreApprovals(a approval.Approval, v web.Verdict) bool {
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

// printQuorum prints how many different people approve a request that waits for more of them, and who has.
func (p *program) printQuorum(a approval.Approval) {
	p.logLine("approval %s: %s", a.ID, cmp.Or(people.QuorumText(a).String(), "more people have to approve"))
}

// loadRunToFollow returns the run to follow after a change of runID. It is the root run while the root is open, else
// runID itself.
func (s *session) loadRunToFollow(ctx context.Context, runID string) (web.Run, error) {
	r, err := s.loadRun(ctx, runID)
	if err != nil || r.Root == "" {
		return r, err
	}
	root, err := s.loadRun(ctx, r.Root)
	if err != nil || root.Status != run.RunDone {
		return root, err
	}
	return r, nil
}

type answerCommand struct {
	Run    string  `arg:"" id:"run" help:"The run."`
	Call   string  `arg:"" id:"call" help:"The call, or the request that asks what became of it."`
	Result *string `xor:"answer" placeholder:"JSON|@FILE|-" help:"The answer, or the result of a call that took effect."`
	Error  *string `xor:"answer" placeholder:"TEXT" help:"It failed, like this."`
	Rerun  bool    `xor:"answer" help:"Carry it out again."`
}

func (c *answerCommand) run(ctx context.Context, p *program) error {
	a := web.Answer{Call: c.Call, Error: c.Error, Rerun: c.Rerun}
	switch {
	case c.Result != nil:
		var err error
		if a.Result, err = p.readJSONArg("--result", *c.Result); err != nil {
			return err
		}
	case c.Error == nil && !c.Rerun:
		return usageErrorf("answer: want --result, --error or --rerun")
	}
	key := clock.NewIDs(p.clock).Key()
	return p.withExistingStore(ctx, c.Run, func(s *session) error {
		if err := s.resolveRequest(ctx, c.Run, &a); err != nil {
			return err
		}
		return s.applyInput(ctx, c.Run, web.Input{Answers: []web.Answer{a}}, key)
	})
}

// resolveRequest sets the approval request of an answer about an unknown outcome. The caller may have named the call
// or the request. A repeated answer then cannot reach a newer request.
func (s *session) resolveRequest(ctx context.Context, runID string, a *web.Answer) error {
	r, err := s.loadRun(ctx, runID)
	if err != nil {
		return err
	}
	for _, w := range r.Waiting {
		if err := s.refuseApproval(ctx, w, a); err != nil {
			return err
		}
		if w.For == run.ForOutcome && (a.Call == w.Call || a.Call == w.Approval) {
			a.Call, a.Approval = w.Call, w.Approval
			return nil
		}
	}
	asked, err := s.loadApproval(ctx, a.Call)
	var none *web.Problem
	switch {
	case errors.As(err, &none) && none.Type == web.ApprovalNotFound: // a call that needs no outcome
		return nil
	case err != nil:
		return err
	}
	switch {
	case asked.Kind == approval.KindInput && asked.Status == approval.Pending:
		a.Call = asked.Call()
		return nil
	case asked.Kind != approval.KindOutcome:
		return usageErrorf("answer: approval %s (%s) asks neither what became of a call nor a tool's question: want approve "+
			"or deny", asked.ID, asked.Status)
	}
	a.Call, a.Approval = asked.Call(), asked.ID
	return nil
}

// refuseApproval refuses an answer for a call that waits for an approval: to the API it is a decision. Most results
// would approve what has not run, and an error would deny it. An error in answer to a request about tools is none: it
// says that nobody could be asked, and ends the run.
func (s *session) refuseApproval(ctx context.Context, w web.Waiting, a *web.Answer) error {
	if w.For != run.ForApproval {
		return nil
	}
	asked, err := s.loadApproval(ctx, w.Approval)
	if err != nil || a.Call != asked.ID && !slices.Contains(asked.Calls, a.Call) {
		return err
	}
	if asked.Kind == approval.KindTools && a.Error != nil {
		return nil
	}
	return usageErrorf("answer: %s waits for approval %s and has not run: want %s, or deny",
		strings.Join(asked.Calls, ", "), asked.ID, s.p.commandLine("approve", asked.ID))
}

type sendCommand struct {
	Run     string   `arg:"" id:"run" help:"The run."`
	Message string   `placeholder:"T" help:"What to say."`
	Attach  []string `sep:"none" placeholder:"FILE" help:"Send a file of up to 100 MB along."`
}

func (c *sendCommand) run(ctx context.Context, p *program) error {
	if c.Message == "" && len(c.Attach) == 0 {
		return usageErrorf("send: want --message")
	}
	message, uploads, err := newUserMessage(c.Message, c.Attach)
	if err != nil {
		return err
	}
	key := clock.NewIDs(p.clock).Key() // one for all retries
	return p.withExistingStore(ctx, c.Run, func(s *session) error {
		if err := s.uploadFiles(ctx, uploads); err != nil {
			return err
		}
		return s.applyInput(ctx, c.Run, web.Input{Messages: []json.RawMessage{message}}, key)
	})
}

func (s *session) applyInput(ctx context.Context, runID string, in web.Input, key string) error {
	before, err := s.loadRunToFollow(ctx, runID)
	if err != nil {
		return err
	}
	begun := context.WithoutCancel(ctx) // an interrupt must not leave the outcome unknown
	got, err := callAPI(begun, s, func(c *web.Client) (web.Accepted, error) { return c.Input(begun, runID, in, key) })
	if bad, ok := errors.AsType[*web.Problem](err); ok { // a command says one thing: its place in the body says nothing
		bad.Detail = strings.TrimPrefix(strings.TrimPrefix(bad.Detail, "answers[0]: "), "messages[0]: ")
	}
	switch {
	case err != nil:
		return err
	case got.Already:
		s.p.logLine("run %s was told that already: nothing was changed", runID)
	case got.Applied == nil || *got.Applied:
	case got.Status == run.RunDone:
		s.p.logLine("run %s had ended: nothing was changed", runID)
	default:
		s.p.logLine("run %s waits for no such answer any more: nothing was changed", runID)
	}
	return s.followAndReport(ctx, before, nil)
}

type cancelCommand struct {
	Run  string `arg:"" id:"run" help:"The run."`
	Note string `placeholder:"T" help:"Why."`
}

// run exits with 0 after a cancelled run, since the command succeeded.
func (c *cancelCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, c.Run, func(s *session) error {
		_, err := callAPI(ctx, s, func(cl *web.Client) (web.Accepted, error) { return cl.Cancel(ctx, c.Run, c.Note) })
		if err != nil {
			return err
		}
		r, err := s.loadRun(ctx, c.Run)
		if err != nil {
			return err
		}
		p.printLine("run %s: %s, %s", r.ID, r.Status, r.Reason)
		return p.printJSON(r)
	})
}

type resumeCommand struct{}

func (*resumeCommand) run(ctx context.Context, p *program) error {
	return p.withReadSession(ctx, func(s *session) error {
		if s == nil {
			p.printLine("nothing is open")
			return p.printJSON(map[string]any{"runs": []web.Run{}})
		}
		var open []string // oldest first; listed before resuming, to include runs that end at once
		for _, status := range []run.RunStatus{run.RunRunning, run.RunWaiting} {
			heads, err := s.listRuns(ctx, web.RunQuery{Status: string(status)})
			if err != nil {
				return err
			}
			for _, h := range slices.Backward(heads) {
				open = append(open, h.ID)
			}
		}
		if err := s.carryOn(ctx, everyRun); err != nil {
			return err
		}
		ended, worst := []web.Run{}, error(nil) // or waiting
		for _, id := range open {
			r, err := s.resumeRun(ctx, id)
			if isInterrupted(ctx, err) {
				p.logInterrupted(id)
				return errors.Join(err, p.printJSON(map[string]any{"runs": ended}))
			}
			if still := stalledError(""); errors.As(err, &still) { // continue with the other runs
				p.logLine("countersign: %s", lines(err.Error()))
				worst = exitCode(exitFailed)
				continue
			}
			if err != nil {
				return err
			}
			ended = append(ended, r)
			if exit := runExit(r); worst == nil || errors.Is(exit, exitCode(exitFailed)) { // an error before a wait
				worst = exit
			}
		}
		if len(open) == 0 {
			p.printLine("nothing is open")
		}
		if err := p.printJSON(map[string]any{"runs": ended}); err != nil {
			return err
		}
		return worst
	})
}

func (s *session) resumeRun(ctx context.Context, id string) (web.Run, error) {
	r, err := s.loadRun(ctx, id)
	if err != nil {
		return r, err
	}
	s.p.logLine("%-8s %s of agent %s", "run", r.ID, line(r.Agent))
	r, err = s.followRun(ctx, r, nil)
	if err != nil {
		return r, err
	}
	if r.Status == run.RunDone {
		s.p.printLine("run %s: %s", r.ID, r.Reason)
		s.p.printOutcome(r)
		return r, nil
	}
	return r, s.printWaits(ctx, r)
}

// askCommand writes to the thread of a request: an approver's question, or the answer of somebody for whom the run
// acts.
type askCommand struct {
	ID   string `arg:"" id:"approval" help:"The approval."`
	Note string `required:"" placeholder:"T" help:"The question, or the answer to one."`
}

func (c *askCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, "", func(s *session) error {
		a, err := s.sendDecision(ctx, c.ID, web.Verdict{Action: web.Reply, Note: c.Note})
		if err != nil {
			return err
		}
		for _, m := range a.Thread {
			p.printText("%-10s %s", "said", p.formatRemark(m))
		}
		return p.printJSON(a)
	})
}

// sendDecision decides a request, or adds a message to its thread.
func (s *session) sendDecision(ctx context.Context, id string, v web.Verdict) (approval.Approval, error) {
	begun := context.WithoutCancel(ctx) // an interrupt must not leave the outcome unknown
	a, err := callAPI(begun, s, func(c *web.Client) (approval.Approval, error) { return c.Decide(begun, id, v) })
	refused, ok := errors.AsType[*web.Problem](err)
	if !ok || !strings.HasSuffix(refused.Detail, s.as.ID+": "+approval.ErrForbidden.Error()) {
		return a, err
	}
	// The approvers of several tools are in the request.
	if asked, failed := s.loadApproval(begun, id); failed == nil && asked.Kind != approval.KindTools {
		refused.Detail += fmt.Sprintf(": want %s (--as says who acts)",
			people.ApproversText(asked.ApproversAt(s.p.clock.Now())))
	}
	return a, err
}

func (p *program) formatRemark(m approval.Remark) string {
	return "by " + line(m.By) + " at " + p.stamp(m.At) + ": " + quoteText(m.Text)
}

func (s *session) printThreads(ctx context.Context, r web.Run) error {
	for _, w := range r.Waiting {
		if w.Approval == "" {
			continue
		}
		a, err := s.loadApproval(ctx, w.Approval)
		if err != nil {
			return err
		}
		for _, m := range a.Thread {
			s.p.printLine("%-9s %s: %s", "said", w.Call, s.p.formatRemark(m))
		}
	}
	return nil
}

func (s *session) promptQuestion(ctx context.Context, a approval.Approval) error {
	note, err := s.promptLine(ctx, "what do you want to know? (empty = nothing) ")
	if err != nil || strings.TrimSpace(note) == "" {
		return ignoreEOF(err)
	}
	_, err = s.sendDecision(ctx, a.ID, web.Verdict{Action: web.Ask, Note: note})
	if refused, ok := errors.AsType[*web.Problem](err); ok {
		s.p.logLine("that is not taken: %s", lines(refused.Detail))
		return nil
	}
	if err == nil {
		s.p.logLine("%-8s %s: it waits until somebody decides", "asked", a.ID)
	}
	return err
}

type deleteCommand struct {
	Run      string `arg:"" id:"run" help:"The run, which has ended."`
	Yes      bool   `help:"Do not ask."`
	Deployed bool   `help:"A run of a deployment (COUNTERSIGN_TABLE, COUNTERSIGN_BUCKET)."`
	Tenant   string `placeholder:"T" help:"Of a deployment: whose run (default: default)."`
}

func (c *deleteCommand) run(ctx context.Context, p *program) error {
	if c.Tenant != "" && !c.Deployed {
		return usageErrorf("--tenant: want it with --deployed: the store directory has one tenant")
	}
	if !c.Yes && !p.terminal {
		return usageErrorf("delete: nobody can be asked here: want --yes")
	}
	remove := c.deleteLocal
	if c.Deployed {
		remove = c.deleteDeployed
	}
	out, err := remove(ctx, p)
	if err != nil {
		return err
	}
	kept := ""
	if out.Kept > 0 {
		kept = fmt.Sprintf("; %s that other runs have, too, are kept", counted(out.Kept, "blob"))
	}
	switch {
	case out.Run == "":
		p.printText("nothing is deleted")
	case out.Already:
		p.printText("run %s was deleted before", out.Run)
	default:
		p.printText("deleted run %s: %s with %s, %s and %s%s", out.Run, counted(out.Runs, "run"),
			counted(out.Entries, "journal entry"), counted(out.Approvals, "request"), counted(out.Blobs, "blob"), kept)
	}
	return p.printJSON(out)
}

func (c *deleteCommand) deleteLocal(ctx context.Context, p *program) (out runtime.Deleted, err error) {
	err = p.withExistingStore(ctx, "", func(s *session) (err error) {
		if sure, err := c.confirm(ctx, s); !sure {
			return err
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave half of it
		out, err = callAPI(begun, s, func(cl *web.Client) (runtime.Deleted, error) { return cl.Delete(begun, c.Run) })
		return err
	})
	return out, err
}

// deleteDeployed deletes with the credentials of whoever runs the command.
func (c *deleteCommand) deleteDeployed(ctx context.Context, p *program) (out runtime.Deleted, err error) {
	table, blobs, err := p.openDeployed()
	if err != nil {
		return out, err
	}
	_, as, err := p.resolvePrincipals()
	if err != nil {
		return out, err
	}
	if sure, err := c.confirm(ctx, &session{p: p}); !sure {
		return out, err
	}
	d := runtime.Deleter{Ports: runtime.Ports{
		Table: table, Blobs: blobs, Journal: store.NewJournal(table, 0), Clock: p.clock,
	}}
	return d.Delete(ctx, cmp.Or(c.Tenant, local.Tenant), c.Run, as.ID)
}

func (c *deleteCommand) confirm(ctx context.Context, s *session) (bool, error) {
	if c.Yes {
		return true, nil
	}
	answer, err := s.promptLine(ctx, "delete run "+c.Run+", the runs below it and all that belongs to them? [y/N] ")
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", ignoreEOF(err)
}
