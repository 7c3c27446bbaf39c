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

// testResult is the JSON document of test.
type testResult struct {
	Scenarios []scenarioResult `json:"scenarios"`
}

type scenarioResult struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Crashes  int      `json:"crashes,omitempty"` // number of crashes tried
	Failures []string `json:"failures"`
}

func (c *testCommand) run(ctx context.Context, p *program) error {
	files, err := scenarioFiles(c.Paths)
	if err != nil {
		return err
	}
	doc := testResult{Scenarios: []scenarioResult{}}
	var bad error
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := c.runScenario(file, p.registry.Options())
		switch {
		case err != nil:
			t.Failures = []string{err.Error()}
			bad = exitCode(exitUsage)
			p.logLine("%s", lines(err.Error()))
		case !t.OK:
			if bad == nil {
				bad = exitCode(exitFailed)
			}
			for _, f := range t.Failures {
				p.printText("FAIL %s: %s", t.Name, lines(f))
			}
		default:
			p.printText("ok %s", t.Name)
		}
		doc.Scenarios = append(doc.Scenarios, t)
	}
	if err := p.printJSON(doc); err != nil {
		return err
	}
	return bad
}

// scenarioFiles returns the scenario files of the arguments, and of directories with all that is below.
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
			return nil, usageErrorf("read scenarios: %w", err)
		}
		if len(files) == before {
			return nil, usageErrorf("read scenarios: there is none in %s", arg)
		}
	}
	return files, nil
}

// runScenario runs one scenario with the known agents. The error says why the scenario cannot run.
func (c *testCommand) runScenario(file string, known agentfile.Options) (scenarioResult, error) {
	t := scenarioResult{Name: file, File: file, Failures: []string{}}
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
		t.addFailures("", r.Plain.Failures)
		for _, f := range r.Failures {
			t.addFailures(fmt.Sprintf("%v %v: ", f.Kind, f.At), f.Failures)
		}
	} else {
		t.addFailures("", s.Run(scenario.Options{}).Failures)
	}
	t.OK = len(t.Failures) == 0
	return t, nil
}

func (t *scenarioResult) addFailures(where string, failures []scenario.Failure) {
	for _, f := range failures {
		t.Failures = append(t.Failures, where+f.String())
	}
}
