package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/countersign/countersign"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// initCommand writes a new project. It needs no network and no store.
type initCommand struct {
	Dir     string `arg:"" help:"Folder to write into. Nothing in it is overwritten."`
	Module  string `placeholder:"PATH" help:"Path of the Go module (default: the name of DIR)."`
	Model   string `default:"demo" placeholder:"SPEC" help:"openai:MODEL@BASE_URL, bedrock:MODEL_ID or demo (default)."`
	Replace string `placeholder:"CHECKOUT" help:"Depend on the checkout of Countersign there, not on a version."`
}

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
	s := project{module: cmp.Or(c.Module, filepath.Base(dir))}
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
	if err := writeProject(dir, files); err != nil {
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

// project is what init writes: a Go module with one agent, its tool, its scenarios, and the deployment. The sample in
// internal/scaffold is code of this repository, built and linted with it. Everything else is the repository's own
// file, so that no copy can fall behind.
type project struct {
	module  string         // path of the new Go module; its last element names the command and the stack
	model   string         // `model` of the agent, as YAML in one line; "" = the sample's script
	library module.Version // Countersign, which the new module depends on
	sum     string         // of library, as in go.sum; "" = there is a replace
	replace string         // absolute path of the checkout that stands for library; "" = none
}

// The sample, and what of it a project has otherwise.
const (
	projectAgent = "agents/support/agent.yaml"
	sampleFolder = "internal/scaffold"
	sampleName   = "my-agents"
	sampleModel  = "{provider: script, file: demo.jsonl}"
)

var projectName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// name returns the name of the project's command and stack. The error says what a module may be called.
func (p project) name() (string, error) {
	if err := module.CheckImportPath(p.module); err != nil {
		return "", err
	}
	name := path.Base(p.module)
	if !projectName.MatchString(name) {
		return "", fmt.Errorf("got %q, want a last element of up to 40 lower-case letters, digits and hyphens that "+
			"begins with a letter: it names the command and the stack on AWS", p.module)
	}
	return name, nil
}

// files returns the content of each file of the project, by path. Text that names the sample, or the repository as the
// module of the agents, names the project instead.
func (p project) files() (map[string][]byte, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	own, files := map[string][]byte{}, map[string][]byte{}
	err = fs.WalkDir(countersign.Files, ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			own[file], err = fs.ReadFile(countersign.Files, file)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the repository's files: %w", err)
	}
	for file, data := range own {
		if _, replaced := own[sampleFolder+"/"+file]; !replaced {
			files[strings.TrimPrefix(file, sampleFolder+"/")] = data
		}
	}
	_, forSAM, _ := bytes.Cut(own["Makefile"], []byte("\n# What `sam build` calls"))
	forSAM, _, _ = bytes.Cut(forSAM, []byte("\n.PHONY: clean"))
	files["Makefile"] = slices.Concat(files["Makefile"], []byte("\n# What `sam build` calls"), forSAM)
	files[".gitignore"], _, _ = bytes.Cut(files[".gitignore"], []byte("\n# the copy of the notes"))
	files["samconfig.toml"] = bytes.ReplaceAll(files["samconfig.toml"], []byte("countersign"), []byte(name))
	files["cmd/"+name+"/main.go"] = files["cmd/countersign/main.go"]
	delete(files, "cmd/countersign/main.go")
	if err := p.require(files); err != nil {
		return nil, fmt.Errorf("write go.mod: %w", err)
	}
	renamed := strings.NewReplacer(
		p.library.Path+"/"+sampleFolder, p.module, p.library.Path+`/agents"`, p.module+`/agents"`,
		"Command countersign", "Command "+name, sampleName, name,
		"model: "+sampleModel, "model: "+cmp.Or(p.model, sampleModel))
	for file, data := range files {
		data = []byte(renamed.Replace(string(data)))
		if path.Ext(file) == ".go" { // imports sort anew
			if data, err = format.Source(data); err != nil {
				return nil, fmt.Errorf("write %s: %w", file, err)
			}
		}
		files[file] = data
	}
	return files, nil
}

// require turns the repository's go.mod and go.sum into those of a module that depends on it. The project builds with
// the versions that Countersign was tested with, without `go mod tidy`, and offline if the module cache has them.
func (p project) require(files map[string][]byte) error {
	own := files["go.mod"]
	f, err := modfile.Parse("go.mod", own, nil)
	if err != nil {
		return err
	}
	all := []*modfile.Require{{Mod: p.library}}
	for _, r := range f.Require {
		all = append(all, &modfile.Require{Mod: r.Mod, Indirect: true})
	}
	f.SetRequireSeparateIndirect(all)
	if err := f.AddModuleStmt(p.module); err != nil {
		return err
	}
	if p.replace != "" {
		if err := f.AddReplace(p.library.Path, "", p.replace, ""); err != nil {
			return err
		}
	}
	f.Cleanup()
	if files["go.mod"], err = f.Format(); err != nil || p.replace != "" {
		return err
	}
	open := func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(own)), nil }
	sum, err := dirhash.Hash1([]string{"go.mod"}, open)
	if err != nil {
		return err
	}
	files["go.sum"] = fmt.Appendf(files["go.sum"], "%[1]s %[2]s %[3]s\n%[1]s %[2]s/go.mod %[4]s\n",
		p.library.Path, p.library.Version, p.sum, sum)
	return nil
}

// writeProject writes files into dir, which is made where it does not exist; none of them may be there. A project that
// cannot be written whole leaves nothing there: it is written into a temporary folder, and moved.
func writeProject(dir string, files map[string][]byte) (err error) {
	var present []string
	names := slices.Sorted(maps.Keys(files))
	for _, file := range names {
		if _, err := os.Lstat(filepath.Join(dir, file)); err == nil {
			present = append(present, file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if more := len(present) - 5; more > 1 {
		present = append(present[:5], fmt.Sprintf("%d more", more))
	}
	if len(present) > 0 {
		return usageErrorf("%s has %s: want a folder without these files: nothing is overwritten", dir,
			strings.Join(present, ", "))
	}
	beside := dir // a folder may be where the shell is, so it is filled and not replaced
	if _, err = os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		beside = filepath.Dir(dir)
		err = os.MkdirAll(beside, 0o755)
	}
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(beside, ".countersign-init-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	whole := filepath.Join(tmp, "project")
	for _, file := range names {
		to := filepath.Join(whole, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, files[file], 0o644); err != nil {
			return err
		}
	}
	if beside != dir {
		return os.Rename(whole, dir)
	}
	return os.CopyFS(dir, os.DirFS(whole))
}
