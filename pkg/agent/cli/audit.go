package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// auditCommand verifies journals, in which each entry holds the hash of the entry before, or lists their repairs.
type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Recompute the hashes of every run's journal and say which were changed."`
	Replay replayCommand      `cmd:"" help:"Fold a run's journal again, offline, and report any difference."`
	Export exportCommand      `cmd:"" hidden:"" help:"As export."`
}

type auditVerifyCommand struct {
	File string   `arg:"" optional:"" help:"An export; - is standard input (default: the journals of the store)."`
	Head []string `placeholder:"HASH" help:"A hash that a run's end announced: an entry must have it. Repeatable."`
}

// verifyResult is the JSON document of audit verify.
type verifyResult struct {
	OK       bool             `json:"ok"`
	Runs     int              `json:"runs"`
	Entries  int64            `json:"entries"`            // unchanged entries
	Problems []journalProblem `json:"problems,omitempty"` // the first problem of each run
	Deleted  []store.Deletion `json:"deleted,omitempty"`  // runs of which the record of their deletion is left
}

// journalProblem is one finding about a run's journal.
type journalProblem struct {
	Run     string `json:"run,omitempty"`
	Line    int64  `json:"line,omitempty"` // of an export, from 1
	Problem string `json:"problem"`
}

func (b journalProblem) String() string {
	switch {
	case b.Line > 0:
		return fmt.Sprintf("line %d: %s", b.Line, b.Problem)
	case b.Run != "":
		return fmt.Sprintf("run %s: %s", b.Run, b.Problem)
	default:
		return b.Problem
	}
}

// verifier recomputes the hashes of journals.
type verifier struct {
	verifyResult
	heads map[string]bool // announced hashes, and whether an entry has them
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
		p.printText("broken: %s", line(found.String()))
	}
	if v.OK = len(v.Problems) == 0; v.OK {
		p.printText("ok: %d entries of %d runs", v.Entries, v.Runs)
	}
	if err := p.printJSON(v.verifyResult); err != nil || v.OK {
		return err
	}
	return exitCode(exitFailed)
}

// add verifies the next entry of a run.
func (v *verifier) add(c *store.Chain, entry []byte) error {
	if err := c.Add(entry); err != nil {
		return err
	}
	v.Entries++
	if _, wanted := v.heads[c.Hash]; wanted {
		v.heads[c.Hash] = true
	}
	return nil
}

// verifyStore verifies all journals of the store. Every run that made an approval request must exist or be deleted.
// Every journal must be as long as its head says.
func (s *session) verifyStore(ctx context.Context, v *verifier) error {
	requests, err := s.listAllApprovals(ctx)
	if err != nil {
		return err
	}
	heads, err := s.listRuns(ctx, api.RunQuery{})
	if err != nil {
		return err
	}
	for _, a := range requests { // a run may change its status during the list
		heads = append(heads, api.RunHead{ID: a.Run, Seq: -1})
	}
	seen, missing := map[string]bool{}, map[string]bool{}
	for _, h := range heads {
		if seen[h.ID] {
			continue
		}
		seen[h.ID] = true
		v.Runs++
		wrong, err := s.verifyRun(ctx, v, h)
		var refused *api.Problem
		switch {
		case errors.As(err, &refused) && refused.Type == api.RunNotFound:
			missing[h.ID] = true
			v.Runs--
		case err != nil:
			return err
		}
		if wrong != nil {
			v.Problems = append(v.Problems, journalProblem{Run: h.ID, Problem: wrong.Error()})
		}
	}
	v.Deleted, err = listAll(ctx, s, func(c *api.Client, cursor string) (api.Page[store.Deletion], error) {
		return c.Deletions(ctx, cursor, pageSize)
	})
	for _, d := range v.Deleted {
		delete(missing, d.Run)
		if _, wanted := v.heads[d.Hash]; wanted {
			v.heads[d.Hash] = true
		}
	}
	for _, run := range slices.Sorted(maps.Keys(missing)) {
		v.Problems = append(v.Problems, journalProblem{Run: run,
			Problem: "taken out: it asked people for approvals, and is not there"})
	}
	return err
}

// verifyRun verifies the journal of the run with head h. A head with sequence -1 has only the id. wrong says what
// differs from the written journal.
func (s *session) verifyRun(ctx context.Context, v *verifier, h api.RunHead) (wrong, err error) {
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
		page, err := callAPI(ctx, s, func(c *api.Client) ([][]byte, error) { return c.Journal(ctx, id, cursor, pageSize) })
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

// exportedEntry is a line of an export.
type exportedEntry struct {
	Run   string          `json:"run"`
	Entry json.RawMessage `json:"entry"` // the exact stored bytes
}

// maxLine is the longest line of an export, in bytes.
const maxLine = 1 << 20

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
	lines.Split(splitLines)
	chains, gone := map[string]*store.Chain{}, map[string]bool{}
	for at := int64(1); lines.Scan(); at++ {
		var l exportedEntry
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil || l.Run == "" || l.Entry == nil || !bytes.Equal(l.encode(), lines.Bytes()) {
			v.Problems = append(v.Problems, journalProblem{Line: at, Problem: "changed: it is not a line of an export"})
			continue
		}
		c, known := chains[l.Run]
		if !known {
			c = &store.Chain{}
			chains[l.Run] = c
			v.Runs++
		}
		if gone[l.Run] {
			continue
		}
		err := v.add(c, l.Entry)
		if err == nil && c.Run != l.Run {
			err = errors.New("changed: it is an entry of another run")
		}
		if err != nil {
			gone[l.Run] = true
			v.Problems = append(v.Problems, journalProblem{Run: l.Run, Line: at, Problem: err.Error()})
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		v.Problems = append(v.Problems, journalProblem{Problem: fmt.Sprintf("changed: a line is longer than %d bytes",
			maxLine)})
		return nil
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// encode returns the line as an export has it.
func (l exportedEntry) encode() []byte {
	text, err := jsonx.MarshalVerbatim(l)
	if err != nil { // cannot happen: the entry was read as JSON
		return nil
	}
	return text
}

// splitLines splits at newlines only. An added carriage return counts as a change.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

type replayCommand struct {
	Run string `arg:"" id:"run" help:"The run."`
}

func (c *replayCommand) run(ctx context.Context, p *program) error {
	return p.withExistingStore(ctx, false, func(s *session) error {
		found, err := callAPI(ctx, s, func(cl *api.Client) (api.Replay, error) { return cl.Replay(ctx, c.Run) })
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
			p.logLine("replay of run %s: %d entries, %d differences", found.Run, found.Entries, n)
			return exitCode(exitFailed)
		}
		p.printText("replay of run %s: %d entries, no difference", found.Run, found.Entries)
		return nil
	})
}
