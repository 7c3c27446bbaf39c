package proof

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"
	"github.com/countersign/countersign/internal/store/dynamo"
)

// tables are those that a run may be kept in. Each history has one of its own; of DynamoDB Local, a partition.
var tables = []struct {
	name string
	few  int // histories that `go test` checks
	open func(t *testing.T) func() store.Table
}{
	{"memory", 12, func(*testing.T) func() store.Table { return func() store.Table { return store.NewMemory() } }},
	{"bolt", 3, func(t *testing.T) func() store.Table {
		return func() store.Table {
			b, err := bolt.Open(filepath.Join(t.TempDir(), "store.db"), bolt.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			return b
		}
	}},
	{"dynamodb", 2, func(t *testing.T) func() store.Table {
		cfg := standins.DynamoDBConfig(t) // skips, and says why, where DynamoDB Local cannot run
		return func() store.Table {
			return dynamo.New(cfg, standins.DynamoDBTable(t, cfg, dynamo.IndexName), clock.NewIDs(clock.System()).Key)
		}
	}},
}

var (
	errLost   = errors.New("connection reset, and nobody knows what became of the request")
	errBefore = errors.New("connection refused, as nobody can tell from the above")
)

// faultyTable is a table that delays, throttles, loses requests and answers, and applies writes long after it reported
// them as lost. It is safe for concurrent use.
type faultyTable struct {
	*fault.Table
	mu    sync.Mutex
	rng   *rand.Rand
	fine  atomic.Bool // from now on nothing goes wrong
	later sync.WaitGroup
}

// draw draws a fault: a number from 0 to 99, and a delay of up to a millisecond, mostly none.
func (f *faultyTable) draw() (fate int, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rng.IntN(3) == 0 {
		delay = time.Duration(f.rng.Int64N(int64(time.Millisecond)))
	}
	fate = f.rng.IntN(100)
	if f.fine.Load() {
		return 99, 0
	}
	return fate, delay
}

// disturb is a hook that makes a call, unless its fate is a fault.
func (f *faultyTable) disturb(ctx context.Context, c fault.Call, call func() error) error {
	fate, delay := f.draw()
	pause(delay)
	if c.Port != fault.TableWrite {
		switch {
		case fate < 2:
			return store.ErrThrottled
		case fate < 3:
			return errBefore
		}
	} else {
		switch {
		case fate < 3:
			return store.ErrThrottled
		case fate < 6:
			return store.ErrConflict
		case fate < 9:
			return errBefore
		case fate < 14: // F2, also of a write whose condition failed
			_ = call()
			return errLost
		case fate < 17:
			f.later.Go(func() {
				pause(5 * delay)
				_ = f.Table.Table.Write(context.WithoutCancel(ctx), c.Ops...)
			})
			return errLost
		}
	}
	defer pause(delay)
	return call()
}

func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}
