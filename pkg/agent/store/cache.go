package store

import (
	"container/list"
	"sync"

	"github.com/countersign/countersign/pkg/agent"
)

// cache holds the folded state of recently used runs. It holds only what was read back or acknowledged (rule 15).
type cache struct {
	mu    sync.Mutex
	limit int
	order *list.List // of agent.AgentState, newest use first
	byRun map[string]*list.Element
}

func newCache(limit int) *cache {
	return &cache{limit: limit, order: list.New(), byRun: map[string]*list.Element{}}
}

func (c *cache) get(tenant, run string) (agent.AgentState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byRun[runPK(tenant, run)]
	if !ok {
		return agent.AgentState{}, false
	}
	c.order.MoveToFront(e)
	return e.Value.(agent.AgentState), true
}

// put keeps s unless a newer state of the run is known.
func (c *cache) put(s agent.AgentState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit == 0 {
		return
	}
	pk := runPK(s.Tenant, s.Run)
	if e, ok := c.byRun[pk]; ok {
		if known := e.Value.(agent.AgentState); known.Entries <= s.Entries {
			e.Value = s
		}
		c.order.MoveToFront(e)
		return
	}
	c.byRun[pk] = c.order.PushFront(s)
	if c.order.Len() > c.limit {
		oldest := c.order.Back()
		old := c.order.Remove(oldest).(agent.AgentState)
		delete(c.byRun, runPK(old.Tenant, old.Run))
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
