package repotest

// This file holds the architecture as a test: which package may import which, what a Lambda binary may not
// link, and who alone may read time or draw a random number.

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/countersign/countersign"

// notInLambda is what no function may link: engines of a laptop, what starts programs, and what is for tests.
var notInLambda = []string{
	"go.etcd.io/bbolt", module + "/internal/store/bolt", module + "/internal/local", module + "/internal/asl",
	module + "/pkg/agent/cli", "github.com/alecthomas/kong", module + "/internal/model/script",
	"expvar", "net/http/pprof", "testing", "github.com/anishathalye/porcupine",
}

// lambdaTags are the build tags of the Makefile's LAMBDA.
const lambdaTags = "lambda.norpc"

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
	Standard   bool
}

// listed is what go says of all packages, once: it takes seconds.
var listed = sync.OnceValues(func() ([]byte, error) {
	const keys = "-json=ImportPath,Dir,GoFiles,Imports,Deps,Standard"
	return exec.Command("go", "list", "-tags", lambdaTags, keys, module+"/...").Output()
})

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := listed()
	require.NoError(t, err)
	var all []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		err := d.Decode(&p)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// core is the machine and what decides over it, in the order in which they may import each other.
var core = []string{"jsonx", "run", "agent", "policy", "prompt"}

func TestTheCoreImportsDownwardsAndNoSDK(t *testing.T) {
	for _, p := range list(t) {
		floor := slices.Index(core, strings.TrimPrefix(p.ImportPath, module+"/internal/"))
		if floor < 0 {
			continue
		}
		for _, imp := range p.Deps {
			below := slices.Index(core, strings.TrimPrefix(imp, module+"/internal/"))
			require.True(t, below >= 0 && below < floor || !strings.Contains(strings.Split(imp, "/")[0], "."),
				"%s depends on %s", p.ImportPath, imp)
		}
		for _, imp := range p.Imports {
			require.NotContains(t, []string{"os", "net", "net/http", "io/fs", "syscall", "math/rand", "math/rand/v2", "crypto/rand"}, imp)
		}
	}
}

func TestFunctionsLinkNoLaptop(t *testing.T) {
	for _, p := range list(t) {
		if !strings.HasPrefix(p.ImportPath, module+"/functions/") {
			continue
		}
		for _, b := range notInLambda {
			require.NotContains(t, p.Deps, b, "%s links %s", p.ImportPath, b)
		}
	}
}

// timeAndChance are the functions that only package clock may call, and the packages that only it may import.
var (
	clockOnly  = []string{"Now", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Since", "Until"}
	randomOnly = []string{"math/rand", "math/rand/v2", "crypto/rand"}
)

func TestOnlyClockReadsTimeAndDrawsChance(t *testing.T) {
	for _, p := range list(t) {
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			require.NoError(t, err)
			if p.ImportPath == module+"/internal/clock" {
				continue
			}
			checkTime(t, p.ImportPath+"/"+f, file)
			for _, imp := range file.Imports {
				require.NotContains(t, randomOnly, strings.Trim(imp.Path.Value, `"`), "%s/%s", p.ImportPath, f)
			}
		}
	}
}

func checkTime(t *testing.T, name string, file *ast.File) {
	t.Helper()
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clockOnly, sel.Sel.Name) {
			t.Errorf("%s calls time.%s: only package clock may", name, sel.Sel.Name)
		}
		return true
	})
}
