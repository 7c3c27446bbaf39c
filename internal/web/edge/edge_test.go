package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/web/edge"
	"github.com/countersign/countersign/statemachine"
)

// kinds reads the constants of type Kind from the source, so that none can be forgotten.
func kinds(t *testing.T) []edge.Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "edge.go", nil, 0)
	require.NoError(t, err)
	var out []edge.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) == 0 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Kind" {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		out = append(out, edge.Kind(name))
		return true
	})
	require.GreaterOrEqual(t, len(out), 5)
	return out
}

type state struct {
	Type     string
	Resource string
	Retry    []struct{ ErrorEquals []string }
	Catch    []struct {
		ErrorEquals []string
		Next        string
	}
}

func states(t *testing.T) map[string]state {
	t.Helper()
	var m struct{ States map[string]state }
	require.NoError(t, json.Unmarshal(statemachine.Agent, &m))
	return m.States
}

// The kinds that pass by themselves are those that the state machine's functions are retried for, no more and no fewer.
func TestRetriedKindsAreTheStateMachines(t *testing.T) {
	var retried []string
	for _, k := range kinds(t) {
		if k.Retried() {
			retried = append(retried, string(k))
		}
	}
	slices.Sort(retried)
	functions := 0
	for name, s := range states(t) {
		if !strings.Contains(s.Resource, "lambda:invoke") {
			continue
		}
		functions++
		named := map[string]bool{}
		for _, r := range s.Retry {
			for _, e := range r.ErrorEquals {
				if strings.HasPrefix(e, "Countersign.") {
					named[e] = true
				}
			}
		}
		require.Equal(t, retried, slices.Sorted(maps.Keys(named)), "state %s", name)
	}
	require.Equal(t, 4, functions, "Step, Tools, Approve, RecordFailure")
}

// No error, retried in vain or not retried at all, leaves an execution without its end on record.
func TestEveryTaskCatchesEverything(t *testing.T) {
	for name, s := range states(t) {
		if s.Type != "Task" {
			continue
		}
		last := s.Catch[len(s.Catch)-1]
		require.Equal(t, []string{"States.ALL"}, last.ErrorEquals, name)
		want := "RecordFailure"
		if name == want {
			want = "Failed"
		}
		require.Equal(t, want, last.Next, name)
	}
}

func TestErrorHasOneKind(t *testing.T) {
	cause := errors.New("throttled")
	err := edge.Wrap(edge.Throttled, cause)
	require.ErrorIs(t, err, cause)
	require.EqualError(t, err, "throttled")
	again := edge.Wrap(edge.Internal, fmt.Errorf("load run: %w", err))
	var e *edge.Error
	require.ErrorAs(t, again, &e)
	require.Equal(t, edge.Throttled, e.Kind, "the first one stays")
	require.Equal(t, "Countersign.Throttled", e.ErrorType())
	require.NoError(t, edge.Wrap(edge.Internal, nil))
	require.ErrorAs(t, edge.Invalidf("read %w", cause), &e)
	require.Equal(t, edge.Invalid, e.Kind)
	require.ErrorIs(t, e, cause)
}
