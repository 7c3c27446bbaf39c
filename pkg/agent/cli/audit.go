package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// auditCommand verifies journals, in which each entry holds the hash of the entry before.
type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Recompute the hashes of every run's journal and say which were changed."`
	Replay replayCommand      `cmd:"" help:"Fold a run's journal again, offline, and report any difference."`
	Export exportCommand      `cmd:"" hidden:"" help:"As export."`
}

type auditVerifyCommand struct {
	File string   `arg:"" optional:"" help:"An export; - is standard input (default: the journals of the store)."`
	Head []string `placeholder:"HASH" help:"A hash that a run's end announced: an entry must have it. Repeatable."`
}

// verifier finds what was changed. Its JSON is what it has found.
type verifier struct {
	OK       bool             `json:"ok"`
	Runs     int              `json:"runs"`
	Entries  int64            `json:"entries"`            // unchanged entries
	Problems []journalProblem `json:"problems,omitempty"` // the first problem of each run
	Deleted  []store.Deletion `json:"deleted,omitempty"`  // runs of which the record of their deletion is left

	heads map[string]bool // announced hashes, and whether an entry has them
}

type journalProblem struct {
	Run     string `json:"run,omitempty"`
	Line    int64  `json:"line,omitempty"` // of an export, from 1
	Problem string `json:"problem"`
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c *auditVerifyCommand) run(ctx context.Context, p *program) error {
	v := &verifier{heads: map[string]bool{}}
	for _, hash := range c.Head {
		if !hashPattern.MatchString(hash) {
			return usageErrorf("--head: got %q, want the hash of an entry: 64 hexadecimal digits", hash)
		}
		v.heads[hash] = false
	}
	var err error
	if c.File == "" {
		err = p.withReadSession(ctx, func(s *session) error { return s.verifyStore(ctx, v) })
	} else {
		err = p.verifyFile(c.File, v)
	}
	if err != nil {
		return err
	}
	for _, hash := range c.Head {
		if !v.heads[hash] {
			v.Problems = append(v.Problems, journalProblem{Problem: "cut off or rewritten: no entry has the hash " + hash})
		}
	}
	for _, d := range v.Deleted {
		p.printText("deleted: run %s of %s, %s up to %s, by %s at %s", d.Run, line(d.Agent),
			counted(d.Entries, "journal entry"), d.Hash, line(d.By), p.stamp(d.At))
	}
	for _, found := range v.Problems {
		where := ""
		switch {
		case found.Line > 0:
			where = fmt.Sprintf("line %d: ", found.Line)
		case found.Run != "":
			where = "run " + found.Run + ": "
		}
		p.printText("broken: %s", line(where+found.Problem))
	}
	if v.OK = len(v.Problems) == 0; v.OK {
		p.printText("ok: %s of %s", counted(v.Entries, "entry"), counted(v.Runs, "run"))
	}
	if err := p.printJSON(v); err != nil || v.OK {
		return err
	}
	return exitCode(exitFailed)
}

func (v *verifier) add(c *store.Chain, entry []byte) error {
	if err := c.Add(entry); err != nil {
		return err
	}
	v.Entries++
	v.noteHash(c.Hash)
	return nil
}

func (v *verifier) noteHash(hash string) {
	if _, wanted := v.heads[hash]; wanted {
		v.heads[hash] = true
	}
}

// verifyStore verifies all journals of the store. Every run that made an approval request must exist or be deleted.
// Every journal must be as long as its head says.
func (s *session) verifyStore(ctx context.Context, v *verifier) error {
	requests, err := s.listAllApprovals(ctx)
	if err != nil {
		return err
	}
	heads, err := s.listRuns(ctx, web.RunQuery{})
	if err != nil {
		return err
	}
	for _, a := range requests { // a run may change its status during the list
		heads = append(heads, web.RunHead{ID: a.Run, Seq: -1})
	}
	seen, missing := map[string]bool{}, map[string]bool{}
	for _, h := range heads {
		if seen[h.ID] {
			continue
		}
		seen[h.ID] = true
		wrong, err := s.verifyRun(ctx, v, h)
		var refused *web.Problem
		switch {
		case errors.As(err, &refused) && refused.Type == web.RunNotFound:
			missing[h.ID] = true
			continue
		case err != nil:
			return err
		case wrong != nil:
			v.Problems = append(v.Problems, journalProblem{Run: h.ID, Problem: wrong.Error()})
		}
		v.Runs++
	}
	v.Deleted, err = listAll(ctx, s, func(c *web.Client, cursor string) (web.Page[store.Deletion], error) {
		return c.Deletions(ctx, cursor, pageSize)
	})
	for _, d := range v.Deleted {
		delete(missing, d.Run)
		v.noteHash(d.Hash)
	}
	for _, run := range slices.Sorted(maps.Keys(missing)) {
		v.Problems = append(v.Problems, journalProblem{Run: run,
			Problem: "taken out: it asked people for approvals, and is not there"})
	}
	return err
}

// verifyRun verifies the journal of the run with head h. A head with sequence -1 has only the id. wrong says what
// differs from the written journal.
func (s *session) verifyRun(ctx context.Context, v *verifier, h web.RunHead) (wrong, err error) {
	c := store.Chain{}
	err = s.readJournal(ctx, h.ID, func(entry []byte) error {
		if wrong = v.add(&c, entry); wrong == nil && c.Entries == 1 && c.Run != h.ID {
			wrong = errors.New("changed: its journal is another run's")
		}
		if wrong == nil && c.Entries-1 == h.Seq && c.Hash != h.Hash {
			wrong = fmt.Errorf("changed: entry %d is not the one that the list of runs names", h.Seq)
		}
		return wrong
	})
	switch {
	case wrong != nil:
		return wrong, nil
	case err != nil:
		return nil, err
	case c.Entries <= h.Seq:
		return fmt.Errorf("cut off: its last entry is %d, and entry %d was written", c.Entries-1, h.Seq), nil
	case h.Status == run.RunDone && !c.Done:
		return errors.New("changed: the list of runs says that it has ended, and its journal does not"), nil
	}
	return nil, nil
}

// readJournal calls f with each stored entry of a run, in order.
func (s *session) readJournal(ctx context.Context, id string, f func(entry []byte) error) error {
	for n, cursor := 0, ""; ; cursor = strconv.Itoa(n - 1) {
		page, err := callAPI(ctx, s, func(c *web.Client) ([][]byte, error) { return c.Journal(ctx, id, cursor, pageSize) })
		if err != nil || len(page) == 0 {
			return err
		}
		for _, entry := range page {
			if err := f(entry); err != nil {
				return err
			}
		}
		n += len(page)
	}
}

type exportedEntry struct {
	Run   string          `json:"run"`
	Entry json.RawMessage `json:"entry"` // the exact stored bytes
}

const maxLine = 1 << 20 // bytes in a line of an export

func (p *program) verifyFile(name string, v *verifier) error {
	from := p.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return usageErrorf("audit verify: %v", err)
		}
		defer f.Close()
		from = f
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	lines.Split(func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		if i := bytes.IndexByte(data, '\n'); i >= 0 { // an added carriage return counts as a change
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	chains, gone := map[string]*store.Chain{}, map[string]bool{}
	for at := int64(1); lines.Scan(); at++ {
		var l exportedEntry
		err := json.Unmarshal(lines.Bytes(), &l)
		if err != nil || l.Run == "" || l.Entry == nil || !bytes.Equal(l.encode(), lines.Bytes()) {
			v.Problems = append(v.Problems, journalProblem{Line: at, Problem: "changed: it is not a line of an export"})
			continue
		}
		c := chains[l.Run]
		if c == nil {
			c = &store.Chain{}
			chains[l.Run] = c
			v.Runs++
		}
		if gone[l.Run] {
			continue
		}
		if err = v.add(c, l.Entry); err == nil && c.Run != l.Run {
			err = errors.New("changed: it is an entry of another run")
		}
		if err != nil {
			gone[l.Run] = true
			v.Problems = append(v.Problems, journalProblem{Run: l.Run, Line: at, Problem: err.Error()})
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		tooLong := fmt.Sprintf("changed: a line is longer than %d bytes", maxLine)
		v.Problems = append(v.Problems, journalProblem{Problem: tooLong})
		return nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(v.Problems) == 0 && v.Runs == 0 {
		v.Problems = append(v.Problems, journalProblem{Problem: "empty: it has no entry of any run, and proves nothing"})
	}
	return nil
}

// encode returns the line without its newline.
func (l exportedEntry) encode() []byte {
	text, err := jsonx.MarshalVerbatim(l)
	if err != nil { // cannot happen: the entry was read as JSON
		return nil
	}
	return text
}

type replayCommand struct {
	Run string `arg:"" id:"run" help:"The run."`
}

func (c *replayCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, "", func(s *session) error {
		found, err := callAPI(ctx, s, func(cl *web.Client) (web.Replay, error) { return cl.Replay(ctx, c.Run) })
		if err != nil {
			return err
		}
		for _, d := range found.Differences {
			p.printText("%s: got %s, want %s", line(d.Path), line(d.Got), line(d.Want))
		}
		if err := p.printJSON(found); err != nil {
			return err
		}
		if n := len(found.Differences); n > 0 {
			p.logLine("replay of run %s: %s, %s", found.Run, counted(found.Entries, "entry"), counted(n, "difference"))
			return exitCode(exitFailed)
		}
		p.printText("replay of run %s: %s, no difference", found.Run, counted(found.Entries, "entry"))
		return nil
	})
}

type exportCommand struct {
	Run      []string `arg:"" optional:"" id:"run" help:"The runs (default: all)."`
	Out      string   `placeholder:"FILE" help:"The file to make; it must not be there (default: standard output)."`
	Test     bool     `help:"Write a scenario that plays the run again, in place of its journal."`
	Redact   bool     `help:"With --test: replace the words of texts, each by one everywhere."`
	Deployed bool     `help:"With --test: a run of a deployment, named as for rehearse."`
	Tenant   string   `placeholder:"T" help:"Of a deployment: whose run (default: default)."`
}

// exportResult is the JSON document of export --out.
type exportResult struct {
	File    string `json:"file"`
	Runs    int    `json:"runs"`
	Entries int64  `json:"entries"`
}

func (c *exportCommand) run(ctx context.Context, p *program) error {
	if p.json && c.Out == "" {
		return usageErrorf("export: what it writes is no JSON document: with --json, want --out FILE")
	}
	if c.Tenant != "" && !c.Deployed {
		return usageErrorf("--tenant: want it with --deployed: the store directory has one tenant")
	}
	if !c.Test {
		if c.Redact || c.Deployed {
			return usageErrorf("export: --redact and --deployed go with --test: a journal is written as it is stored")
		}
		return p.withReadSession(ctx, func(s *session) error {
			return c.write(p, func(to io.Writer, doc *exportResult) error { return c.writeEntries(ctx, s, to, doc) })
		})
	}
	if len(c.Run) != 1 {
		return usageErrorf("export --test: got %d runs, want one", len(c.Run))
	}
	data, err := c.makeTest(ctx, p)
	if err != nil {
		return err
	}
	return c.write(p, func(to io.Writer, doc *exportResult) error {
		doc.Runs = 1
		_, err := to.Write(data)
		return err
	})
}

func (c *exportCommand) write(p *program, write func(io.Writer, *exportResult) error) error {
	doc := exportResult{File: c.Out}
	if c.Out == "" {
		return write(p.stdout, &doc)
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageErrorf("--out: %v", err)
	}
	if err = errors.Join(write(f, &doc), f.Close()); err != nil { // a partial export looks complete
		return errors.Join(fmt.Errorf("write %s: %w", c.Out, err), os.Remove(c.Out))
	}
	if c.Test {
		p.printText("run %s in %s; play it with %s", c.Run[0], line(c.Out), p.commandLine("test", c.Out))
	} else {
		p.printText("%s of %s in %s", counted(doc.Entries, "entry"), counted(doc.Runs, "run"), line(c.Out))
	}
	return p.printJSON(doc)
}

// makeTest returns the scenario of a run. Another process that has the store makes it there.
func (c *exportCommand) makeTest(ctx context.Context, p *program) ([]byte, error) {
	if c.Deployed {
		table, blobs, err := p.openDeployed()
		if err != nil {
			return nil, err
		}
		known, problems := p.loadLocalAgents()
		p.logSkippedAgents(problems)
		from := storedRuns{store.NewJournal(table, 0), blobs, cmp.Or(c.Tenant, local.Tenant)}
		return scenario.Export(ctx, from, c.Run[0], c.Redact, known.Options())
	}
	var made exportedTest
	err := p.withExistingStore(ctx, "", func(s *session) error {
		_, err := s.loadHead(ctx, c.Run[0])
		switch {
		case !policy.MayDecide(web.Auditors, s.as):
			return fmt.Errorf("export as %s: want a member of %s", s.as.ID, strings.Join(web.Auditors, " or "))
		case err != nil:
			return err
		case s.engine != nil:
			made = s.engine.exportTest(ctx, c.Run[0], c.Redact)
			return nil
		default:
			q := url.Values{"run": c.Run, "redact": {strconv.FormatBool(c.Redact)}}
			return p.queryEngine(ctx, exportPath+"?"+q.Encode(), &made)
		}
	})
	if err == nil && made.Problem != "" {
		err = errors.New(made.Problem)
	}
	return made.Data, err
}

// writeEntries writes the entries run by run, oldest run first.
func (c *exportCommand) writeEntries(ctx context.Context, s *session, to io.Writer, doc *exportResult) error {
	ids := c.Run
	if len(ids) == 0 {
		heads, err := s.listRuns(ctx, web.RunQuery{})
		if err != nil {
			return err
		}
		slices.SortStableFunc(heads, func(a, b web.RunHead) int { return a.StartedAt.Compare(b.StartedAt) })
		for _, h := range heads {
			ids = append(ids, h.ID)
		}
	} else if s == nil {
		return usageErrorf("there is no run %s: nothing has run there yet", strings.Join(ids, ", "))
	}
	out, written := bufio.NewWriter(to), map[string]bool{}
	for _, id := range ids {
		if written[id] {
			continue
		}
		written[id] = true
		doc.Runs++
		err := s.readJournal(ctx, id, func(entry []byte) error {
			doc.Entries++
			_, err := out.Write(append(exportedEntry{id, entry}.encode(), '\n'))
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Flush()
}
