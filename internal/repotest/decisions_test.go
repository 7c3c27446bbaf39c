package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chokePoint is where decisions are authorised (approvals.md, A9).
const chokePoint = "internal/approval"

// decisionFacts are the facts that a person's word becomes, and who may make them beside the desk: the core, of words that the desk has kept or that
// it asks it to make of an answer.
var decisionFacts = map[string][]string{
	"Decided":      {chokePoint, "internal/policy/decision.go", "internal/run/event.go"},
	"DecisionKept": {chokePoint, "internal/run/event.go"},
}

// requestWrites are the writes to requests, and the files beside the desk's own that may put them into a transaction: those of the entries that
// ask, overtake and use requests, which decide nothing but what was kept.
var requestWrites = map[string][]string{
	"CreateOp":     {"internal/runtime/runtime.go", "internal/runtime/permissions.go"},
	"DecideOp":     {"internal/runtime/runtime.go"}, // settledEarly
	"CloseOp":      {"internal/runtime/runtime.go"},
	"CloseToolsOp": {"internal/runtime/permissions.go"},
	"ConsumeOp":    {"internal/runtime/permissions.go"},
	"PermitOp":     {"internal/runtime/permissions.go"},
	"StandingOp":   {"internal/runtime/permissions.go"},
}

// requestKeys are the packages that may name the keys of requests.
var requestKeys = []string{chokePoint, "internal/people/notify"}

// accepting are the methods of the desk that put events into runs. Void lets no call run.
var accepting = []string{"Decide", "PrepareDecision", "Void"}

// sources parses what is no test of a package.
func sources(t *testing.T, p pkg) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, f := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
		require.NoError(t, err)
		files[strings.TrimPrefix(p.ImportPath, module+"/")+"/"+f] = file
	}
	return files
}

// nameOf is the last part of a name, and whether it is of another package.
func nameOf(n ast.Node) (name, of string) {
	switch n := n.(type) {
	case *ast.Ident:
		return n.Name, ""
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			return n.Sel.Name, x.Name
		}
		return n.Sel.Name, ""
	default:
		return "", ""
	}
}

func allowed(file string, places []string) bool {
	return slices.ContainsFunc(places, func(p string) bool { return file == p || strings.HasPrefix(file, p+"/") })
}

// A9: nobody but the desk makes a decision: neither its fact, nor a write to its request, nor its key.
func TestA9OnlyTheDeskDecides(t *testing.T) {
	met := map[string]bool{}
	for _, p := range list(t) {
		for file, parsed := range sources(t, p) {
			core := strings.HasPrefix(file, "internal/run/")
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					name, of := nameOf(n.Type)
					if places, is := decisionFacts[name]; is && len(n.Elts) > 0 && (of == "run" || core && of == "") {
						met[name] = true
						require.True(t, allowed(file, places), "%s makes a %s: only %v may", file, name, places)
					}
				case *ast.SelectorExpr:
					name, of := nameOf(n)
					if places, is := requestWrites[name]; is && of == "approval" {
						met[name] = true
						require.True(t, allowed(file, places), "%s writes a request with %s: only %v may", file, name, places)
					}
				case *ast.BasicLit:
					if n.Kind == token.STRING && strings.Contains(n.Value, "#APPROVAL#") {
						met["key"] = true
						require.True(t, allowed(file, requestKeys), "%s names the key of a request: only %v may", file, requestKeys)
					}
				}
				return true
			})
		}
	}
	for name := range decisionFacts {
		require.True(t, met[name], "nobody makes a %s any more", name)
	}
	for name := range requestWrites {
		require.True(t, met[name], "nobody calls %s any more", name)
	}
	require.True(t, met["key"])
}

// A9: within the desk, every way into a run's inbox begins at one of its methods, and the one that decides authorises first.
func TestA9TheDeskAuthorisesFirst(t *testing.T) {
	calls := map[string][]string{} // by function
	for _, p := range list(t) {
		if p.ImportPath != module+"/"+chokePoint {
			continue
		}
		for _, parsed := range sources(t, p) {
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Body == nil {
					continue
				}
				ast.Inspect(f.Body, func(n ast.Node) bool {
					if c, ok := n.(*ast.CallExpr); ok {
						name, _ := nameOf(c.Fun)
						calls[f.Name.Name] = append(calls[f.Name.Name], name)
					}
					return true
				})
			}
		}
	}
	var roots []string
	for name := range calls {
		if ast.IsExported(name) && reaches(calls, name, "Accept", map[string]bool{}) {
			roots = append(roots, name)
		}
	}
	require.ElementsMatch(t, accepting, roots, "these put words into runs")
	require.Contains(t, calls["Decide"], "commitDecision")
	for at := "Decide"; at != "authorizeDecision"; { // in Decide itself, or in what it calls
		authorised := slices.IndexFunc(calls[at], func(callee string) bool { return reaches(calls, callee, "authorizeDecision", map[string]bool{}) })
		require.GreaterOrEqual(t, authorised, 0)
		for _, callee := range calls[at][:authorised] {
			require.False(t, reaches(calls, callee, "Accept", map[string]bool{}), "%s calls %s before it authorises", at, callee)
		}
		at = calls[at][authorised]
	}
	for name, callees := range calls { // nobody else records
		require.True(t, name == "Decide" || !slices.Contains(callees, "commitDecision"), "%s calls commitDecision past Decide", name)
	}
}

// reaches reports whether a function calls another, however far down.
func reaches(calls map[string][]string, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(calls[from], func(next string) bool { return reaches(calls, next, to, seen) })
}
