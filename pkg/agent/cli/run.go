package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

type runCommand struct {
	Agent    string   `arg:"" help:"A directory or file with an agent.yaml, or a registered agent."`
	Input    string   `placeholder:"JSON|@FILE|-" help:"Start from this JSON."`
	Message  string   `placeholder:"TEXT" help:"Start from what a user says."`
	Attach   []string `sep:"none" placeholder:"FILE" help:"Send a file of up to 100 MB along with the message."`
	Key      string   `placeholder:"K" help:"Idempotency key: the same key and request give the same run."`
	Continue string   `placeholder:"RUN" id:"run" help:"Go on with a finished run's conversation."`
	Model    string   `placeholder:"SPEC" help:"script:FILE, openai:MODEL@URL, bedrock:ID or demo, for all its models."`
	Dir      string   `placeholder:"DIR" help:"Folder of file tools and MCP programs, in place of the agent's."`
	Yes      bool     `xor:"verdict" help:"Approve everything."`
	No       bool     `xor:"verdict" help:"Deny everything."`
}

func (c *runCommand) run(ctx context.Context, p *program) error {
	hasMessage := c.Message != "" || len(c.Attach) > 0 // all flags and files are checked before any store is opened
	if hasMessage == (c.Input != "") {
		return usageErrorf("run: want --input, or --message and --attach")
	}
	def, err := p.loadAgent(c.Agent, agentOverrides{model: c.Model, dir: c.Dir})
	if err != nil {
		return err
	}
	key := cmp.Or(c.Key, clock.NewIDs(p.clock).Key()) // one for all retries
	start, uploads := web.Start{Definition: def, Key: key, Continues: c.Continue}, []upload(nil)
	if c.Input != "" {
		start.Input, err = p.readJSONArg("--input", c.Input)
	} else {
		start.Message, uploads, err = newUserMessage(c.Message, c.Attach)
	}
	if err != nil {
		return err
	}
	return p.withSession(ctx, func(s *session) error {
		if err := s.uploadFiles(ctx, uploads); err != nil {
			return err
		}
		ask := s.terminalDecider()
		switch {
		case c.Yes:
			ask = s.decideAlways(approval.Approve, "--yes")
		case c.No:
			ask = s.decideAlways(approval.Deny, "--no")
		}
		id := agent.RunID(local.Tenant, def.Name, key)
		return s.startAndFollow(ctx, id, func(ctx context.Context, cl *web.Client) (web.Accepted, error) {
			return cl.Start(ctx, start)
		}, ask)
	})
}

// startAndFollow starts the run with an id, or carries it on if it is there, and follows it. ask decides meanwhile;
// nil = nobody here decides.
func (s *session) startAndFollow(
	ctx context.Context, id string, start func(context.Context, *web.Client) (web.Accepted, error), ask *decider,
) error {
	if err := s.carryOn(ctx, id); err != nil {
		return err
	}
	begun := context.WithoutCancel(ctx) // an interrupt must not leave the outcome unknown
	if _, err := callAPI(begun, s, func(cl *web.Client) (web.Accepted, error) { return start(begun, cl) }); err != nil {
		return err
	}
	return s.followAndReport(ctx, web.Run{ID: id}, ask)
}

// followAndReport follows a run until it has ended or waits again, and prints the result. Of a command that was
// interrupted it prints how to go on.
func (s *session) followAndReport(ctx context.Context, before web.Run, ask *decider) error {
	r, err := s.followRun(ctx, before, ask)
	switch {
	case err == nil:
		return s.reportRun(ctx, r)
	case !isInterrupted(ctx, err):
		return err
	}
	s.p.logInterrupted(before.ID)
	if !s.p.json {
		return err
	}
	still := context.WithoutCancel(ctx)
	r, lookErr := s.loadRun(still, before.ID)
	if lookErr == nil {
		lookErr = s.p.writeJSON(r)
	}
	return errors.Join(err, lookErr)
}

// terminalDecider returns the person at the terminal; nil = there is none.
func (s *session) terminalDecider() *decider {
	if !s.p.terminal {
		return nil
	}
	return &decider{one: s.promptDecision, batch: s.promptBatch}
}

// followRun follows a run to its end and decides its requests, those of delegated runs included. It returns early if
// every open request waits for somebody else or was left for later.
func (s *session) followRun(ctx context.Context, r web.Run, ask *decider) (web.Run, error) {
	f, later := s.newFollower(r), map[string]bool{}
	k := &delegationWatcher{s: s, printed: map[string]string{}, seqs: map[string]int64{}, polls: map[string]int{}}
	for {
		r, err := f.waitUntilParked(ctx)
		if err != nil || r.Status == run.RunDone {
			return r, err
		}
		all, err := s.loadDelegation(ctx, r)
		if err != nil {
			return r, err
		}
		k.printChanges(all)
		progressed, err := s.decideAll(ctx, all, later, ask)
		if err == nil && !progressed {
			progressed, err = k.waitForProgress(ctx, all)
		}
		if err != nil || !progressed {
			return r, err
		}
	}
}

// decideAll decides every open request of a run and the runs below it, unless it was left for later. It reports
// whether one was decided.
func (s *session) decideAll(
	ctx context.Context, all delegation, later map[string]bool, ask *decider,
) (decided bool, err error) {
	if ask == nil {
		return false, nil
	}
	var open []string
	for _, r := range all.open {
		for _, w := range r.Waiting {
			if !later[w.Approval] && (w.For == run.ForApproval || w.For == run.ForInput) {
				open = append(open, w.Approval)
			}
		}
	}
	approved := map[string]string{}
	if len(open) > 1 && ask.batch != nil {
		var all bool
		if approved, all, err = ask.batch(ctx, open); err != nil {
			return false, err
		}
		for _, id := range open {
			later[id] = all
		}
	}
	for _, id := range open {
		if later[id] {
			continue
		}
		done, err := s.decideRequest(ctx, id, approved[id], ask)
		if err != nil {
			return decided, err
		}
		decided, later[id] = decided || done, !done
	}
	return decided, nil
}

// decideRequest asks about one request until it is decided, by this person or another, or left for later. What was
// approved with a batch, by its digest, is not asked about again while it stands.
func (s *session) decideRequest(ctx context.Context, id, approved string, ask *decider) (decided bool, err error) {
	for {
		a, err := s.loadApproval(ctx, id)
		if err != nil || a.Status != approval.Pending {
			return err == nil, err
		}
		v := &web.Verdict{Action: approval.Approve}
		if approved == "" || approved != a.Digest {
			v, err = ask.one(ctx, a)
		}
		if approved = ""; err != nil || v == nil {
			return false, err
		}
		v.Digest = a.Digest
		a, err = s.sendDecision(ctx, id, *v)
		var refused *web.Problem
		switch {
		case err == nil && needsMoreApprovals(a, *v):
			s.p.printQuorum(a)
			return false, nil
		case !errors.As(err, &refused):
			return err == nil, err
		}
		s.p.logLine("countersign: %s", lines(refused.Detail))
		switch refused.Type {
		case web.EditRefused: // the person may edit again
			if v.Action != approval.Edit { // --yes would give the same answer again
				return false, nil
			}
		case web.RequestChanged: // show the changed request
		case web.NotLinked:
			return false, err
		case web.AlreadyDecided, web.ApprovalExpired, web.RunFinished, web.PolicyChanged:
			return true, nil
		default:
			return false, nil
		}
	}
}

func (p *program) logInterrupted(run string) {
	p.logLine("\nrun %s is left as it is; %s carries it on, %s ends it", run, p.commandLine("resume"),
		p.commandLine("cancel", run))
}

// reportRun prints how a run ended or what it waits for, and returns the exit.
func (s *session) reportRun(ctx context.Context, r web.Run) error {
	p := s.p
	if !r.StartedAt.IsZero() {
		took := r.UpdatedAt.Sub(r.StartedAt).Round(time.Second)
		p.logEvent("total", "%s, %s, %s", counted(r.Inferences, "turn"), formatUsage(r.Usage, r.Cost), took)
	}
	if r.Status == run.RunWaiting {
		if err := s.printWaits(ctx, r); err != nil {
			return err
		}
	} else {
		p.printOutcome(r)
	}
	if p.json {
		whole, err := s.loadRun(ctx, r.ID)
		if err != nil {
			return err
		}
		if err := p.writeJSON(whole); err != nil {
			return err
		}
	}
	return runExit(r)
}

func (s *session) printWaits(ctx context.Context, r web.Run) error {
	all, err := s.loadDelegation(ctx, r)
	if err != nil {
		return err
	}
	for _, r := range all.open {
		for _, w := range r.Waiting {
			switch {
			case waitsForRun(w):
				for _, below := range slices.Concat(all.done, all.open) {
					if below.ID == w.Run {
						s.p.printLine("run %s waits for run %s of agent %s (%s)", r.ID, below.ID, line(below.Agent), w.Call)
					}
				}
			case w.For == run.ForAnswer:
				if err := s.printUnanswered(ctx, r.ID, w); err != nil {
					return err
				}
			default:
				a, err := s.loadApproval(ctx, w.Approval)
				if err != nil {
					return err
				}
				s.printWaitingApproval(a)
			}
		}
	}
	return nil
}

func (s *session) printUnanswered(ctx context.Context, run string, w web.Waiting) error {
	// one that is followed comes without its calls
	r, err := s.loadRun(ctx, run)
	if err != nil {
		return err
	}
	tool := w.Call // unless the call is among the newest
	if i := slices.IndexFunc(r.Calls, func(c web.Call) bool { return c.ID == w.Call }); i >= 0 {
		tool = r.Calls[i].Tool
	}
	p := s.p
	p.printLine("run %s waits for an answer of %s (%s) until %s:", r.ID, line(tool), w.Call, p.stamp(w.Expires))
	p.printLine("  %s", p.commandLine("answer", r.ID, w.Call, "--result", "JSON"))
	p.printLine("  %s", p.commandLine("answer", r.ID, w.Call, "--error", "TEXT"))
	return nil
}

func (s *session) printWaitingApproval(a approval.Approval) {
	p, now := s.p, s.p.clock.Now()
	what, below := "approval "+a.ID+" of", ""
	if a.Root != "" {
		below = fmt.Sprintf(" of agent %s, for run %s,", line(a.Agent), a.Root)
	}
	switch a.Kind {
	case approval.KindOutcome:
		what = "word on what became of"
	case approval.KindInput:
		what = "input " + a.ID + " for"
	}
	p.printLine("run %s%s waits for %s %s (%s) until %s:", a.Run, below, what,
		line(strings.Join(a.Tools, ", ")), strings.Join(a.Calls, ", "), p.stamp(a.ExpiresAt))
	if a.Kind == approval.KindCall && !a.CanDecide(s.as, now) {
		p.printLine("  %s decides, not %s (--as says who acts)", people.ApproversText(a.ApproversAt(now)), s.as.ID)
	}
	for _, way := range p.answerCommands(a) {
		p.printLine("  %s", way)
	}
}

func (p *program) printOutcome(r web.Run) {
	switch {
	case r.Error != nil:
		p.logLine("run %s ended in error: %s: %s", r.ID, r.Error.Code, lines(r.Error.Message))
	case r.Reason == run.ReasonCancelled:
		p.logLine("run %s was cancelled", r.ID)
	case cutNote(r) != "":
		p.logLine("run %s: %s", r.ID, cutNote(r))
	}
	if out := formatOutput(r.Output); out != "" {
		p.printLine("%s", out)
	}
}

// cutNote says that the answer of a run is not whole; "" = it is, or the reason of its end says more.
func cutNote(r web.Run) string {
	if r.Reason != run.ReasonNaturalEnd || r.Detail == "" {
		return ""
	}
	return "the last reply is not whole (" + line(r.Detail) + ")"
}

type forkCommand struct {
	Run   string `arg:"" id:"run" help:"The run to branch off."`
	At    *int64 `placeholder:"SEQ" help:"The entry behind which the new run parts from it (events RUN lists them)."`
	Model string `placeholder:"SPEC" help:"script:FILE, openai:MODEL@URL, bedrock:ID or demo, for all its models."`
	Key   string `placeholder:"K" help:"Idempotency key: the same key and request give the same run."`
}

func (c *forkCommand) run(ctx context.Context, p *program) error {
	if c.At == nil || *c.At < 0 {
		return usageErrorf("fork: want --at SEQ, an entry of the run, from 0")
	}
	key := cmp.Or(c.Key, clock.NewIDs(p.clock).Key()) // one for all retries
	f := web.Fork{At: c.At, Key: key}
	if c.Model != "" { // checked before any store is opened
		m, err := overrideModel(agent.ModelSpec{}, c.Model)
		if err != nil {
			return err
		}
		if _, err := p.newModel(m, nil); err != nil {
			return usageErrorf("--model: %v", err)
		}
		f.Model = &web.ForkModel{Provider: m.Provider, ID: m.ID, BaseURL: m.BaseURL, File: m.File}
	}
	return p.withExistingStore(ctx, "", func(s *session) error {
		past, err := s.loadHead(ctx, c.Run)
		if err != nil {
			return err
		}
		id := agent.RunID(local.Tenant, past.Agent, key)
		return s.startAndFollow(ctx, id, func(ctx context.Context, cl *web.Client) (web.Accepted, error) {
			return cl.Fork(ctx, c.Run, f)
		}, s.terminalDecider())
	})
}

type undoCommand struct {
	Run  string `arg:"" id:"run" help:"The run, which has ended."`
	Call string `arg:"" id:"call" help:"The call to take back (show RUN lists what would)."`
}

func (c *undoCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, "", func(s *session) error {
		past, err := s.loadHead(ctx, c.Run)
		if err != nil {
			return err
		}
		id := agent.UndoID(local.Tenant, past.Agent, c.Run, c.Call)
		return s.startAndFollow(ctx, id, func(ctx context.Context, cl *web.Client) (web.Accepted, error) {
			u, err := cl.Undo(ctx, c.Run, c.Call)
			if err == nil && u.Already {
				p.logLine("call %s of run %s: somebody has asked to take it back before, in run %s", line(c.Call),
					c.Run, u.ID)
			}
			return web.Accepted{ID: u.ID, Status: u.Status, Links: u.Links}, err
		}, s.terminalDecider())
	})
}

// formatUndo returns what would undo a call, or the result of its undo.
func (p *program) formatUndo(ctx context.Context, definitions *definitionCache, run string, c web.Call) string {
	u := c.Undo
	switch {
	case u.Reason != "":
		return fmt.Sprintf("%s: %s", c.ID, line(u.Reason))
	case u.Run != "":
		return fmt.Sprintf("%s: by run %s, %s", c.ID, u.Run, strings.TrimSpace(string(u.Status)+" "+string(u.Ended)))
	default:
		return fmt.Sprintf("%s: %s, with %s", c.ID,
			line(u.Tool+" "+definitions.maskInput(ctx, run, u.Tool, u.Input)), p.commandLine("undo", run, c.ID))
	}
}

// upload is a file to upload before a message, because it is too large to be inline.
type upload struct {
	path string
	blob web.Blob
}

// newUserMessage builds a message from a text, files or both. It reads the files and sends nothing.
func newUserMessage(text string, files []string) (message json.RawMessage, uploads []upload, err error) {
	if len(files) == 0 {
		message, err = json.Marshal(text)
		return message, nil, err
	}
	var blocks []run.UserBlock
	for _, f := range files {
		b, large, err := attachFile(f)
		if err != nil {
			return nil, nil, err
		}
		blocks, uploads = append(blocks, run.UserBlock{Block: b}), append(uploads, large...)
	}
	if text != "" {
		blocks = append(blocks, run.UserBlock{Block: run.Text{Text: text}})
	}
	message, err = json.Marshal(blocks)
	return message, uploads, err
}

// attachFile returns a file as a block: inline if the file is small, else with its upload.
func attachFile(path string) (b run.Media, large []upload, err error) {
	f, err := os.Open(path)
	if err != nil {
		return b, nil, usageErrorf("--attach: %v", err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, web.MaxInline+1))
	if err != nil {
		return b, nil, usageErrorf("--attach: %v", err)
	}
	mediaType := mime.TypeByExtension(filepath.Ext(path))
	if mediaType == "" {
		mediaType = http.DetectContentType(head)
	}
	mediaType, _, _ = strings.Cut(mediaType, ";")
	b = run.Media{Name: filepath.Base(path), MediaType: mediaType}
	info, err := f.Stat()
	switch {
	case len(head) == 0:
		return b, nil, usageErrorf("--attach %s: the file is empty", path)
	case len(head) <= web.MaxInline:
		b.Data = base64.StdEncoding.EncodeToString(head)
		return b, nil, nil
	case err != nil:
		return b, nil, usageErrorf("--attach: %v", err)
	case !info.Mode().IsRegular(): // the upload reads it again
		return b, nil, usageErrorf("--attach %s: it has more than %d KiB and is no regular file", path, web.MaxInline>>10)
	case info.Size() > store.MaxBlob:
		return b, nil, usageErrorf("--attach %s: the file has %d bytes, want at most %d", path, info.Size(), store.MaxBlob)
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(io.MultiReader(bytes.NewReader(head), f), store.MaxBlob+1))
	switch {
	case err != nil:
		return b, nil, usageErrorf("--attach: %v", err)
	case n > store.MaxBlob: // the file has grown
		return b, nil, usageErrorf("--attach %s: the file has more than %d bytes", path, store.MaxBlob)
	}
	b.Blob = hex.EncodeToString(h.Sum(nil))
	return b, []upload{{path, web.Blob{MediaType: mediaType, Bytes: n, SHA256: b.Blob}}}, nil
}

// uploadFiles uploads the files of a message. Repeating an upload is harmless.
func (s *session) uploadFiles(ctx context.Context, uploads []upload) error {
	for _, u := range uploads {
		s.p.logEvent("upload", "%s, %d bytes", line(u.path), u.blob.Bytes)
		_, err := callAPI(ctx, s, func(c *web.Client) (string, error) {
			return c.Upload(ctx, u.blob, func() (io.ReadCloser, error) { return os.Open(u.path) })
		})
		switch {
		case errors.Is(err, web.ErrFile):
			return usageErrorf("--attach %s: %w", u.path, err)
		case err != nil:
			return fmt.Errorf("--attach %s: %w", u.path, err)
		}
	}
	return nil
}
