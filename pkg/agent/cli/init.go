package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// initCommand writes a new project. It needs no network and no store.
type initCommand struct {
	Dir     string `arg:"" help:"Folder to write into; empty, or not there yet."`
	Module  string `placeholder:"PATH" help:"Path of the Go module (default: the name of DIR)."`
	Model   string `default:"demo" placeholder:"SPEC" help:"openai:MODEL@BASE_URL, bedrock:MODEL_ID or demo (default)."`
	Replace string `placeholder:"CHECKOUT" help:"Depend on the checkout of Countersign there, not on a version."`
}

// initResult is the JSON document of init.
type initResult struct {
	Dir    string   `json:"dir"` // absolute
	Module string   `json:"module"`
	Next   []string `json:"next"` // commands to type
}

func (c *initCommand) run(_ context.Context, p *program) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return usageErrorf("init: %v", err)
	}
	s := project{module: c.Module}
	if c.Module == "" {
		s.module = filepath.Base(dir)
	}
	if _, err := s.name(); err != nil {
		return usageErrorf("init: module: %v; --module PATH gives another one than DIR", err)
	}
	if s.model, err = modelOfProject(c.Model); err != nil {
		return err
	}
	if err := c.findLibrary(&s); err != nil {
		return err
	}
	files, err := s.files()
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	known := agentfile.Options{AllowUnknownTools: true} // the tool's code is in the project
	if _, err := agentfile.Parse(projectAgent, files[projectAgent], known); err != nil {
		return usageErrorf("--model: %w", err)
	}
	if err := writeProject(dir, files); errors.Is(err, errNotEmpty) {
		return usageErrorf("init: %w", err)
	} else if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	next := []string{"cd " + quoteShell(c.Dir), "make demo", "make test"}
	if p.json {
		return p.writeJSON(initResult{dir, s.module, next})
	}
	p.printLine("%s holds an agent, its tool, its scenarios and the deployment; the README says where. Next:", c.Dir)
	for _, command := range next {
		p.printLine("  %s", command)
	}
	return nil
}

// modelOfProject returns a model as agent.yaml has it in one line; "" = the sample's own.
func modelOfProject(spec string) (string, error) {
	m, err := overrideModel(agent.ModelSpec{}, spec)
	switch {
	case err != nil || m.Provider == "script":
		return "", usageErrorf("--model: got %q, want openai:MODEL@BASE_URL, bedrock:MODEL_ID or demo", spec)
	case m.Provider == "demo":
		return "", nil
	case m.BaseURL != "":
		return fmt.Sprintf("{provider: %s, id: %q, baseURL: %q}", m.Provider, m.ID, m.BaseURL), nil
	default:
		return fmt.Sprintf("{provider: %s, id: %q}", m.Provider, m.ID), nil
	}
}

// findLibrary sets which Countersign the project depends on: the version in this program, or a checkout.
func (c *initCommand) findLibrary(s *project) error {
	if c.Replace != "" {
		folder, err := filepath.Abs(c.Replace)
		if err != nil {
			return usageErrorf("--replace: %v", err)
		}
		data, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err != nil || modfile.ModulePath(data) != lambdafn.ModulePath {
			return usageErrorf("--replace: %s is no checkout of %s: want the folder of its go.mod", c.Replace,
				lambdafn.ModulePath)
		}
		s.library, s.replace = module.Version{Path: lambdafn.ModulePath, Version: "v0.0.0"}, folder
		return nil
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == lambdafn.ModulePath && m.Sum != "" && m.Replace == nil {
				s.library, s.sum = module.Version{Path: lambdafn.ModulePath, Version: m.Version}, m.Sum
				return nil
			}
		}
	}
	return usageErrorf("init: this program was built in a checkout of Countersign, of which no version can be fetched: " +
		"add --replace CHECKOUT, its folder, or use go run " + lambdafn.ModulePath + "/cmd/countersign@latest init")
}
