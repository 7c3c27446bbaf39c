package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

type testCommand struct {
	Paths []string `arg:"" name:"file" help:"Scenarios (.txtar), or directories of them."`
	Crash bool     `help:"Repeat each with a crash at every I/O point."`
}

// tested is the JSON document of test.
type tested struct {
	Scenarios []testedScenario `json:"scenarios"`
}

type testedScenario struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Crashes  int      `json:"crashes,omitempty"` // runs with a crash
	Failures []string `json:"failures"`
}

func (c *testCommand) run(ctx context.Context, p *program) error {
	files, err := scenarioFiles(c.Paths)
	if err != nil {
		return err
	}
	doc := tested{Scenarios: []testedScenario{}}
	var bad error
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := c.test(file, p.registry.Options())
		switch {
		case err != nil:
			t.Failures = []string{err.Error()}
			bad = exit(exitUsage)
			p.note("%s", lines(err.Error()))
		case !t.OK && bad == nil:
			bad = exit(exitFailed)
		}
		p.tested(t, err == nil)
		doc.Scenarios = append(doc.Scenarios, t)
	}
	if err := p.answer(doc); err != nil {
		return err
	}
	return bad
}

// scenarioFiles are the files of the arguments; of a directory all scenarios in it and below.
func scenarioFiles(paths []string) ([]string, error) {
	var files []string
	for _, arg := range paths {
		before := len(files)
		err := filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path == arg || filepath.Ext(path) == ".txtar") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, usage("read scenarios: %w", err)
		}
		if len(files) == before {
			return nil, usage("read scenarios: there is none in %s", arg)
		}
	}
	return files, nil
}

// test runs one scenario, whose agent may name what is known. The error says why it cannot be run.
func (c *testCommand) test(file string, known agentfile.Options) (testedScenario, error) {
	t := testedScenario{Name: file, File: file, Failures: []string{}}
	data, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	s, err := scenario.LoadWithOptions(file, data, known)
	if err != nil {
		return t, err
	}
	t.Name = s.Name
	if c.Crash {
		r := s.Crash(0)
		t.Crashes = r.Runs
		t.add("", r.Plain.Failures)
		for _, f := range r.Failures {
			t.add(fmt.Sprintf("%v %v: ", f.Kind, f.At), f.Failures)
		}
	} else {
		t.add("", s.Run(scenario.Options{}).Failures)
	}
	t.OK = len(t.Failures) == 0
	return t, nil
}

func (t *testedScenario) add(where string, failures []scenario.Failure) {
	for _, f := range failures {
		t.Failures = append(t.Failures, where+f.String())
	}
}

func (p *program) tested(t testedScenario, ran bool) {
	if t.OK {
		p.tell("ok %s", t.Name)
		return
	}
	for _, f := range t.Failures {
		if ran {
			p.tell("FAIL %s: %s", t.Name, lines(f))
		}
	}
}
