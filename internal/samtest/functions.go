package samtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const functionType = "AWS::Serverless::Function"

// functions says what a function is to be: a Go bootstrap on arm64, built by make, with logs of its own in JSON.
func functions(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources(functionType) {
		for _, want := range [][2]string{
			{"Runtime", "provided.al2023"}, {"Handler", "bootstrap"}, {"Architectures", "[arm64]"}, {"Tracing", "Active"}, {"CodeUri", "."},
		} {
			if got := p.Property(r, want[0]); got.Short() != want[1] {
				found = append(found, r.problem(got, "%s: want %s, got %q", want[0], want[1], got.Short()))
			}
		}
		logging := p.Property(r, "LoggingConfig")
		if logging.Get("LogFormat").String() != "JSON" {
			found = append(found, r.problem(logging, "LoggingConfig.LogFormat: want JSON"))
		}
		if want := strings.TrimSuffix(r.ID, "Function") + "Logs"; logging.Get("LogGroup").Short() != want {
			found = append(found, r.problem(logging, "LoggingConfig.LogGroup: want %s, its own", want))
		}
	}
	return found
}

// build says which functions `sam build` cannot make.
func build(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources(functionType) {
		if got := r.Node.Get("Metadata", "BuildMethod"); got.String() != "makefile" {
			found = append(found, r.problem(got, "Metadata.BuildMethod: want makefile"))
		}
		target := "build-" + r.ID
		recipe := regexp.MustCompile(`(?m)^` + target + `:\n\t(.*)$`).FindStringSubmatch(p.Makefile)
		if recipe == nil {
			found = append(found, Problem{File: MakefileName, Of: target, Text: "no such target: SAM builds " + r.ID + " by it"})
			continue
		}
		want := "$(LAMBDA) -o $(ARTIFACTS_DIR)/bootstrap ./functions/" + strings.ToLower(strings.TrimSuffix(r.ID, "Function"))
		if recipe[1] != want {
			found = append(found, Problem{File: MakefileName, Of: target, Text: "want " + want})
		}
	}
	return found
}

// The limits of R7, in seconds: a task outlives the function it has invoked.
const (
	lambdaLimit  = 900
	gatewayLimit = 30
	shortestWait = 60 // package runtime gives no wait less
)

// timeouts says where a caller gives up before the function it calls (R7).
func timeouts(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources(functionType) {
		n := p.Property(r, "Timeout")
		own, err := strconv.Atoi(n.String())
		if err != nil || own <= 0 || own > lambdaLimit {
			found = append(found, r.problem(n, "Timeout: want seconds, 1 to %d, got %q", lambdaLimit, n.String()))
			continue
		}
		for _, t := range p.tasksOf(r.ID) {
			limit := t.State.TimeoutSeconds
			if t.State.TimeoutSecondsPath != "" {
				limit = shortestWait
			}
			if own >= limit {
				found = append(found, r.problem(n, "Timeout: %d s: want less than the %d s of state %s", own, limit, t.Name))
			}
		}
		found = append(found, p.gateway(r, own)...)
	}
	return found
}

func (p *Project) gateway(r Resource, own int) []Problem {
	var found []Problem
	for _, i := range p.Resources("AWS::ApiGatewayV2::Integration") {
		if i.Properties.Get("IntegrationUri").Short() != r.ID+".Arn" {
			continue
		}
		limit := i.Properties.Get("TimeoutInMillis")
		if ms, err := strconv.Atoi(limit.String()); err != nil || ms > gatewayLimit*1000 || own*1000 >= ms {
			found = append(found, r.problem(limit, "Timeout: %d s: want less than the gateway's, which has at most %d s", own, gatewayLimit))
		}
	}
	return found
}

// environment says which variables functions read and the template does not set, and the other way round.
func environment(p *Project) []Problem {
	var found []Problem
	set := map[string]bool{}
	visit := func(of string, n *Node) {
		for _, e := range n.entries() {
			set[e.Key] = true
			if strings.HasPrefix(e.Key, "COUNTERSIGN_") && !slices.Contains(p.Reads, e.Key) {
				found = append(found, Problem{File: TemplateFile, Line: e.Line, Of: of, Text: e.Key + ": no function reads it"})
			}
		}
	}
	visit("Globals.Function", p.Template.Get("Globals", "Function", "Environment", "Variables"))
	for _, r := range p.Resources(functionType) {
		visit(r.ID, r.Properties.Get("Environment", "Variables"))
	}
	for _, name := range p.Reads {
		if !set[name] {
			found = append(found, Problem{File: TemplateFile, Of: name, Text: "the functions read it: want it among their variables"})
		}
	}
	return found
}

var variable = regexp.MustCompile(`^(COUNTERSIGN_[A-Z_]*[A-Z]|OPENAI_API_KEY)$`)

// variables finds the names of environment variables in the constants of packages, test files aside.
func variables(root string, packages ...string) ([]string, error) {
	var names []string
	for _, dir := range packages {
		files, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return nil, fmt.Errorf("read variables: %w", err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, dir, f.Name()), nil, 0)
			if err != nil {
				return nil, fmt.Errorf("read variables: %w", err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if name := strings.Trim(lit.Value, `"`); variable.MatchString(name) {
						names = append(names, name)
					}
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
