package proof

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// history records operations as their callers see them. It is safe for concurrent use.
type history struct {
	now atomic.Int64
	mu  sync.Mutex
	ops []porcupine.Operation
}

// do makes and records an operation. An uncertain one may take effect at any later moment, or never.
func (h *history) do(who int, in any, f func() (out any, uncertain bool)) {
	called := h.now.Add(1)
	out, uncertain := f()
	h.add(porcupine.Operation{ClientId: who, Input: in, Output: out, Call: called, Return: h.now.Add(1)}, uncertain)
}

// add records an operation. Uncertain reads are dropped. Of equal uncertain operations only the earliest is kept, since
// each further one doubles the search.
func (h *history) add(op porcupine.Operation, uncertain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !uncertain {
		h.ops = append(h.ops, op)
		return
	}
	op.Return = math.MaxInt64
	switch op.Input.(type) {
	case get, read:
		return
	case work, finish, send:
		for i, other := range h.ops {
			if other.Return == math.MaxInt64 && other.Input == op.Input {
				h.ops[i].Call = min(other.Call, op.Call)
				return
			}
		}
	}
	h.ops = append(h.ops, op)
}

var seedOfHashes = maphash.MakeSeed()

// specification is the sequential specification of states S, from the first one on: step returns the states that an
// operation with an answer of type O may lead to.
func specification[S comparable, O any](first S, step func(s S, in any, out O) []S) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Hash: func(state any) uint64 { return maphash.Comparable(seedOfHashes, state.(S)) },
		Init: func() []any { return []any{first} },
		Step: func(state, in, out any) (next []any) {
			for _, s := range step(state.(S), in, out.(O)) {
				next = append(next, s)
			}
			return next
		},
	}
	return m.ToModel()
}

// limit is how long one history may take to be checked. It takes milliseconds; one that nobody can decide is a failure.
const limit = 30 * time.Second

// check searches for a sequential order of the operations that the specification allows.
func (h *history) check(m porcupine.Model) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(m, h.ops, limit)
}

func (h *history) require(t *testing.T, m porcupine.Model, seed int64) {
	t.Helper()
	require.Equal(t, porcupine.Ok, h.check(m), "seed %d: there is no order of these operations that explains what they answered:\n%s", seed, h)
}

func (h *history) String() string {
	ops := slices.Clone(h.ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range ops {
		until := "?"
		if op.Return != math.MaxInt64 {
			until = fmt.Sprint(op.Return)
		}
		fmt.Fprintf(&b, "%4d-%-4s by %-2d %+v: %+v\n", op.Call, until, op.ClientId, op.Input, op.Output)
	}
	return b.String()
}

// histories is how many of a kind are checked over a table: few, or as many more as are of the fastest one.
func histories(t *testing.T, few int) int {
	t.Helper()
	v := os.Getenv("COUNTERSIGN_LINEAR")
	if v == "" {
		return few
	}
	n, err := strconv.Atoi(v)
	require.NoError(t, err, "COUNTERSIGN_LINEAR: got %q, want how many histories of each kind are checked", v)
	return max(1, n*few/tables[0].few)
}
