package store

import (
	"container/list"
	"sync"

	"github.com/countersign/countersign/internal/run"
)

// cache holds the folded state of recently used runs. It holds only what was read back or acknowledged (rule 15).
type cache struct {
	mu    sync.Mutex
	limit int
	order *list.List // of warm, newest use first
	byRun map[string]*list.Element
}

// warm is a run as it is known: its fold, and its newest entry as it is stored.
type warm struct {
	state run.AgentState
	body  []byte
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), byRun: map[string]*list.Element{}}
}

func (c *cache) get(tenant, run string) (warm, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byRun[runPK(tenant, run)]
	if !ok {
		return warm{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(warm), true
}

// put keeps w unless a newer state of the run is known.
func (c *cache) put(w warm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit == 0 {
		return
	}
	pk := runPK(w.state.Tenant, w.state.Run)
	if e, ok := c.byRun[pk]; ok {
		if known := e.Value.(warm); known.state.Entries <= w.state.Entries {
			e.Value = w
		}
		c.order.MoveToFront(e)
		return
	}
	c.byRun[pk] = c.order.PushFront(w)
	if c.order.Len() > c.limit {
		oldest := c.order.Back()
		old := c.order.Remove(oldest).(warm)
		delete(c.byRun, runPK(old.state.Tenant, old.state.Run))
	}
}

func (c *cache) drop(tenant, run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byRun[runPK(tenant, run)]; ok {
		c.order.Remove(e)
		delete(c.byRun, runPK(tenant, run))
	}
}
