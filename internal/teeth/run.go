package teeth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// caseTime is how long a case may take.
const caseTime = 2 * time.Minute

// Bench is a build with all mutations in it.
type Bench struct {
	root  string
	jaw   string            // the command internal/teeth/jaw
	tests map[string]string // by package
}

// testedPackage is whose tests cases are that name no other.
const testedPackage = "pkg/agent/runtime"

func (c Case) tested() string { return cmp.Or(c.Package, testedPackage) }

// Build builds the module in the folder root with all mutations, into the folder dir.
func Build(ctx context.Context, root, dir string, all []Mutation) (*Bench, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	overlay, err := WriteOverlay(root, dir, all)
	if err != nil {
		return nil, err
	}
	b := &Bench{root: root, jaw: filepath.Join(dir, "jaw"), tests: map[string]string{}}
	builds := [][]string{{"build", "-overlay", overlay, "-o", b.jaw, "./internal/teeth/jaw"}}
	for _, m := range all {
		for _, c := range m.Cases {
			if p := c.tested(); c.Test != "" && b.tests[p] == "" {
				b.tests[p] = filepath.Join(dir, path.Base(p)+".test")
				builds = append(builds, []string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", b.tests[p], "./" + p})
			}
		}
	}
	for _, args := range builds {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, out)
		}
	}
	return b, nil
}

// Outcome is what became of a case.
type Outcome struct {
	Mutation string // "" = none worked
	Case     Case
	Failed   bool   // it found something that is not as wanted
	Said     string // what it found; else what else it said
	Took     time.Duration
}

// Run runs a case with the mutation of that name working; "" = with none. The error is that it cannot be run.
func (b *Bench) Run(ctx context.Context, mutation string, c Case) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTime)
	defer cancel()
	var cmd *exec.Cmd
	if c.Test != "" {
		cmd = exec.CommandContext(ctx, b.tests[c.tested()], "-test.run", c.Test, "-test.v", "-test.count=1")
		cmd.Dir = filepath.Join(b.root, filepath.FromSlash(c.tested()))
	} else {
		file, err := b.archive(c.Scenario)
		if err != nil {
			return Outcome{}, err
		}
		cmd = exec.CommandContext(ctx, b.jaw, file, c.With)
	}
	cmd.Env = append(os.Environ(), Variable+"="+mutation)
	watch := clock.System()
	begun := watch.Now()
	out, err := cmd.CombinedOutput()
	o := Outcome{Mutation: mutation, Case: c, Said: strings.TrimSpace(string(out)), Took: watch.Now().Sub(begun)}
	var exit *exec.ExitError
	switch {
	case err == nil && c.Test != "" && !strings.Contains(o.Said, "--- PASS"):
		return o, fmt.Errorf("%s: there is no such test", c)
	case err == nil:
		return o, nil
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		o.Failed = true
		return o, nil
	default:
		return o, fmt.Errorf("%s: %w\n%s", c, err, o.Said)
	}
}

// archive is the file of a scenario.
func (b *Bench) archive(name string) (string, error) {
	for _, dir := range []string{"internal/teeth/testdata", "scenarios"} {
		file := filepath.Join(b.root, filepath.FromSlash(dir), name+".txtar")
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("there is no scenario %s", name)
}

// Line is the line of what the case said that tells that the mutation was caught; "" = there is none, or a panic has hidden it.
func (o Outcome) Line() string {
	if !o.Failed || strings.Contains(o.Said, "panic: ") {
		return ""
	}
	for line := range strings.Lines(o.Said) {
		if strings.Contains(line, o.Case.Wants) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
