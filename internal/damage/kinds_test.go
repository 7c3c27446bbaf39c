package damage_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kinds are all places at which the product makes the key of an item, and the test that damages items of that kind. A key that is made somewhere
// else is of a kind without cases, and fails this test.
var kinds = map[string]string{
	"pkg/agent/store.entryKey":        "pkg/agent/store.TestDamagedRuns",
	"pkg/agent/store.slotKey":         "pkg/agent/store.TestDamagedRuns",
	"pkg/agent/store.markerKey":       "pkg/agent/store.TestDamagedRuns",
	"pkg/agent/store.headKey":         "pkg/agent/store.TestDamagedRuns",
	"pkg/agent/approval.key":          "pkg/agent/approval.TestDamagedRequests",
	"pkg/agent/approval.standingKey":  "pkg/agent/approval.TestDamagedGrants",
	"pkg/agent/approval.serverKey":    "pkg/agent/approval.TestDamagedServers",
	"pkg/agent/person.preferencesKey": "pkg/agent/person.TestDamagedPeople",
	"pkg/agent/person.headKey":        "pkg/agent/person.TestDamagedPeople",
	"pkg/agent/person.key":            "pkg/agent/person.TestDamagedPeople",
	"pkg/agent/notify.noticeKey":      "pkg/agent/notify.TestDamagedNotice",
	"pkg/agent/audit.headKey":         "pkg/agent/audit.TestDamagedAudit",
	"pkg/agent/audit.cursorKey":       "pkg/agent/audit.TestDamagedAudit",
	"pkg/agent/audit.placeKey":        "pkg/agent/audit.TestDamagedAudit",
	"pkg/agent/audit.chained":         "pkg/agent/audit.TestC5EveryChangeIsFound", // lines
	"pkg/agent/audit.markerKey":       "",                                         // that it is there is all it says
	"pkg/agent/link.itemKey":          "pkg/agent/link.TestDamagedLinks",
	"pkg/agent/runtime.adviceKey":     "pkg/agent/runtime.TestDamagedRecordsBesideRuns",
	"pkg/agent/runtime.owedKey":       "pkg/agent/runtime.TestDamagedRecordsBesideRuns",
	"pkg/agent/runtime.placeKey":      "pkg/agent/runtime.TestDamagedRecordsBesideRuns",
	"pkg/agent/runtime.repairKey":     "pkg/agent/runtime.TestDamagedRecordsBesideRuns",
	"pkg/agent/runtime.markKey":       "pkg/agent/runtime.TestDamagedRecordsBesideRuns",
	"internal/local.Save":             "internal/local.TestDamagedExecutions",
	"pkg/agent/store.broken":          "", // names what is damaged
	"pkg/agent/dynamo.decode":         "", // the adapters read whatever key there is
	"pkg/agent/dynamo.listed":         "",
	"pkg/agent/dynamo.readCursor":     "",
	"pkg/agent/bolt.fromItem":         "",
	"pkg/agent/bolt.fromRow":          "",
	"pkg/agent/bolt.spared":           "",
	"pkg/agent/store/storetest.key":   "",
}

func TestEveryKindOfItemHasCases(t *testing.T) {
	made, tests := map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"pkg", "internal", "functions"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			in := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
			for _, decl := range file.Decls {
				if strings.HasSuffix(path, "_test.go") {
					if f, ok := decl.(*ast.FuncDecl); ok {
						tests[in+"."+f.Name.Name] = true
					}
					continue
				}
				if strings.HasPrefix(in, "pkg/") || in == "internal/local" {
					keysIn(decl, in, made)
				}
			}
			return nil
		}))
	}
	unused := maps.Clone(kinds)
	for at := range made {
		_, known := kinds[at]
		require.True(t, known, "%s makes the key of an item: say in kinds which test damages such items", at)
		delete(unused, at)
	}
	require.Empty(t, slices.Sorted(maps.Keys(unused)), "these make no keys any more")
	for at, test := range kinds {
		require.True(t, test == "" || tests[test], "%s: there is no test %s", at, test)
	}
	t.Logf("%d kinds with cases", len(slices.DeleteFunc(slices.Collect(maps.Values(kinds)), func(test string) bool { return test == "" })))
}

// keysIn notes where a declaration makes keys.
func keysIn(decl ast.Decl, in string, made map[string]bool) {
	name := ""
	if f, ok := decl.(*ast.FuncDecl); ok {
		name = f.Name.Name
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && name == "" {
			name = spec.Names[0].Name
		}
		lit, ok := n.(*ast.CompositeLit)
		if !ok || len(lit.Elts) == 0 {
			return true
		}
		switch of := lit.Type.(type) {
		case *ast.SelectorExpr:
			if x, ok := of.X.(*ast.Ident); ok && x.Name == "store" && of.Sel.Name == "Key" {
				made[in+"."+name] = true
			}
		case *ast.Ident:
			if in == "pkg/agent/store" && of.Name == "Key" {
				made[in+"."+name] = true
			}
		}
		return true
	})
}
