package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// exportCommand writes journals, or a run as a scenario.
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
			return c.write(p, func(to io.Writer) (exportResult, error) { return c.writeEntries(ctx, s, to) })
		})
	}
	if len(c.Run) != 1 {
		return usageErrorf("export --test: got %d runs, want one", len(c.Run))
	}
	data, err := c.makeTest(ctx, p)
	if err != nil {
		return err
	}
	return c.write(p, func(to io.Writer) (exportResult, error) {
		_, err := to.Write(data)
		return exportResult{File: c.Out, Runs: 1}, err
	})
}

// write writes an export to its file, or to standard output.
func (c *exportCommand) write(p *program, to func(io.Writer) (exportResult, error)) error {
	if c.Out == "" {
		_, err := to(p.stdout)
		return err
	}
	f, err := os.OpenFile(c.Out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return usageErrorf("--out: %v", err)
	}
	doc, err := to(f)
	if err = errors.Join(err, f.Close()); err != nil { // a partial export looks complete
		return errors.Join(fmt.Errorf("write %s: %w", c.Out, err), os.Remove(c.Out))
	}
	if c.Test {
		p.printText("run %s in %s; play it with %s", c.Run[0], line(c.Out), p.commandLine("test", c.Out))
	} else {
		p.printText("%d entries of %d runs in %s", doc.Entries, doc.Runs, line(c.Out))
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
	err := p.withExistingStore(ctx, false, func(s *session) (err error) {
		switch {
		case !policy.MayDecide(api.Auditors, s.as):
			return fmt.Errorf("export as %s: want a member of %s", s.as.ID, strings.Join(api.Auditors, " or "))
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
func (c *exportCommand) writeEntries(ctx context.Context, s *session, to io.Writer) (exportResult, error) {
	doc, ids := exportResult{File: c.Out}, c.Run
	if len(ids) == 0 {
		heads, err := s.listRuns(ctx, api.RunQuery{})
		if err != nil {
			return doc, err
		}
		slices.SortStableFunc(heads, func(a, b api.RunHead) int { return a.StartedAt.Compare(b.StartedAt) })
		for _, h := range heads {
			ids = append(ids, h.ID)
		}
	} else if s == nil {
		return doc, usageErrorf("there is no run %s: nothing has run there yet", strings.Join(ids, ", "))
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
			return doc, err
		}
	}
	return doc, out.Flush()
}
