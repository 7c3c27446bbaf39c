package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/web/api"
)

// auditCommand reads the audit chain of the store, or an export of any.
type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Recompute the audit chain of the store, or of a file of JSON lines, and say where it is broken."`
	Export auditExportCommand `cmd:"" help:"Write the audit chain as JSON lines."`
}

type auditVerifyCommand struct {
	File  string `arg:"" optional:"" help:"An export; - is standard input (default: the chain of the store)."`
	Head  string `placeholder:"HASH" help:"A hash that was noted down: an entry must have it."`
	After int64  `placeholder:"SEQ" help:"Of a file that was exported with it: it begins behind this entry."`
}

// verified is the JSON document of audit verify.
type verified struct {
	OK      bool       `json:"ok"`
	Entries int64      `json:"entries"` // that are as they should be, from the beginning
	Head    audit.Head `json:"head"`    // the last of them
	Line    int64      `json:"line,omitempty"`
	Problem string     `json:"problem,omitempty"` // "" = nothing is broken
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c *auditVerifyCommand) run(ctx context.Context, p *program) error {
	if c.Head != "" && !hashPattern.MatchString(c.Head) {
		return usage("--head: got %q, want the hash of an entry: 64 hexadecimal digits", c.Head)
	}
	if c.After < 0 || c.After > 0 && c.File == "" {
		return usage("--after: got %d, want the sequence of an entry, with a file", c.After)
	}
	v := &audit.Verifier{Last: audit.Head{Seq: c.After}}
	if c.Head != "" {
		v.Expect(c.Head)
	}
	var err error
	if c.File == "" {
		err = p.looking(ctx, func(s *session) error { return s.verify(ctx, v) })
	} else {
		err = p.verifyFile(c.File, v)
	}
	return p.tellVerified(v, err)
}

// tellVerified says what became of it. An error that is none of the chain's is given back.
func (p *program) tellVerified(v *audit.Verifier, err error) error {
	doc := verified{OK: err == nil, Entries: v.Count, Head: v.Last}
	var broken *audit.BreakError
	switch {
	case errors.As(err, &broken):
		doc.Line, doc.Problem = broken.Line, broken.Problem
		p.tell("broken: %s", line(broken.Error()))
		switch v.Count {
		case 0:
			p.tell("nothing before that is known to be as it was written")
		case 1:
			p.tell("the entry before that is as it was written: %d %s", v.Last.Seq, v.Last.Hash)
		default:
			p.tell("the %d entries before that are as they were written, the last one is %d %s", v.Count, v.Last.Seq, v.Last.Hash)
		}
	case err != nil:
		return err
	default:
		if v.Count == 0 {
			p.tell("ok: there is no entry")
			break
		}
		p.tell("ok: %d entries", v.Count)
		p.tell("head: %d %s", v.Last.Seq, v.Last.Hash)
	}
	if err := p.answer(doc); err != nil {
		return err
	}
	if !doc.OK {
		return exit(exitFailed)
	}
	return nil
}

// maxLine is longer than any line of a chain.
const maxLine = 1 << 20

func (p *program) verifyFile(name string, v *audit.Verifier) error {
	from := p.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return usage("audit verify: %v", err)
		}
		defer f.Close()
		from = f
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if err := v.Add(lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return &audit.BreakError{Line: v.Count + 1, Problem: fmt.Sprintf("changed: it is longer than %d bytes", maxLine)}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return v.End()
}

// wholeLines splits at newlines and nowhere else: a carriage return that somebody has added is a change.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// chainPage is how many entries are asked for at once.
const chainPage = 200

// chain gives the lines behind an entry to f, in order, and the heads as of before the first of them and the last page; of no session, none.
func (s *session) chain(ctx context.Context, after int64, f func(line []byte, first audit.Head) error) (before, newest audit.Head, err error) {
	type part struct {
		lines [][]byte
		head  audit.Head
	}
	for page := 0; s != nil; page++ {
		got, err := call(ctx, s, func(c *api.Client) (got part, err error) {
			got.lines, got.head, err = c.AuditLines(ctx, after, chainPage)
			return got, err
		})
		if err != nil {
			return before, newest, err
		}
		if newest = got.head; page == 0 {
			before = got.head
		}
		for _, l := range got.lines {
			if err := f(l, before); err != nil {
				return before, newest, err
			}
		}
		if after += int64(len(got.lines)); len(got.lines) < chainPage {
			break
		}
	}
	return before, newest, nil
}

// verify recomputes the chain of the store. Every request that was made is in it.
func (s *session) verify(ctx context.Context, v *audit.Verifier) error {
	if err := s.expectRequests(ctx, v); err != nil {
		return err
	}
	before, newest, err := s.chain(ctx, 0, func(line []byte, head audit.Head) error {
		if err := v.Add(line); err != nil {
			return err
		}
		return v.Fits(head)
	})
	if err != nil {
		return err
	}
	if newest.Seq < v.Last.Seq { // others may have written since the head of the last page was read
		if _, newest, err = s.chain(ctx, v.Last.Seq, func([]byte, audit.Head) error { return nil }); err != nil {
			return err
		}
	}
	if err := v.EndsAt(before, newest); err != nil {
		return err
	}
	return v.End()
}

func (s *session) expectRequests(ctx context.Context, v *audit.Verifier) error {
	if s == nil {
		return nil
	}
	for _, status := range []approval.Status{
		approval.Pending, approval.Approved, approval.Denied, approval.Expired, approval.Cancelled, approval.Voided,
	} {
		made, err := s.approvals(ctx, approval.Query{Status: status})
		if err != nil {
			return err
		}
		for _, a := range made {
			v.ExpectRequest(a.ID)
		}
	}
	return nil
}

type auditExportCommand struct {
	After int64  `placeholder:"SEQ" help:"Only entries behind this one."`
	Out   string `placeholder:"FILE" help:"The file to make; it must not be there (default: standard output)."`
}

// exported is the JSON document of audit export --out.
type exported struct {
	File    string     `json:"file"`
	Entries int64      `json:"entries"`
	Head    audit.Head `json:"head"` // the newest entry of the chain when it was read
}

func (c *auditExportCommand) run(ctx context.Context, p *program) error {
	if c.After < 0 {
		return usage("--after: got %d, want the sequence of an entry", c.After)
	}
	if p.json && c.Out == "" {
		return usage("audit export: JSON lines are no one document: with --json, want --out FILE")
	}
	return p.looking(ctx, func(s *session) error {
		if c.Out == "" {
			_, _, err := c.write(ctx, s, p.stdout)
			return err
		}
		f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return usage("--out: %v", err)
		}
		count, head, err := c.write(ctx, s, f)
		if err = errors.Join(err, f.Close()); err != nil { // half of a chain looks like a whole one
			return errors.Join(fmt.Errorf("write %s: %w", c.Out, err), os.Remove(c.Out))
		}
		p.tell("%d entries in %s", count, line(c.Out))
		p.tell("head: %d %s", head.Seq, head.Hash)
		return p.answer(exported{c.Out, count, head})
	})
}

// write writes the lines.
func (c *auditExportCommand) write(ctx context.Context, s *session, to io.Writer) (count int64, head audit.Head, err error) {
	out := bufio.NewWriter(to)
	_, head, err = s.chain(ctx, c.After, func(line []byte, _ audit.Head) error {
		count++
		_, err := out.Write(append(bytes.Clone(line), '\n'))
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	return count, head, err
}
