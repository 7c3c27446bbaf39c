package web

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
)

// Bounds of stories.
const (
	maxStories    = 50
	maxPageBars   = 300
	maxKeptEvents = 200
)

// story is when things happened in a run, from its events. A journal only grows, so that each event is read once.
type story struct {
	mu     sync.Mutex
	after  string // id of the newest event that was read
	at     map[int64]time.Time
	turns  map[int64]*turn // by the sequence of the reply's entry
	calls  map[string]*callStory
	newest []Event // at most maxKeptEvents

	entry, before time.Time // of the entry that is read, and of the one before it
	seq           int64
}

// turn is one reply of a model.
type turn struct {
	From, To time.Time // From is when the run was last written before: nothing records the request
	Model    string
	Usage    run.Usage
	Cost     run.USD
}

// spent says how many tokens the reply took, and how much money.
func (t *turn) spent() string {
	return strings.TrimSuffix(formatNumber(t.Usage.Total())+" tokens, "+formatUSD(t.Cost), ", ")
}

// callStory is what happened to a call.
type callStory struct {
	From, To time.Time // of the newest attempt; To is zero while it runs
	Waits    []wait
	Decided  []decided
}

// wait is a time in which a call waited for somebody.
type wait struct {
	From, To time.Time // To is zero while it waits
	For      run.WaitFor
}

// decided is what a person did about a call.
type decided struct {
	run.Decided
	At time.Time
}

// loadStory returns what happened in a run so far. The caller must not change it, and holds its lock while reading.
func (c *console) loadStory(ctx context.Context, id string) (*story, error) {
	c.mu.Lock()
	key := c.Tenant + "/" + id
	s := c.stories[key]
	if s == nil {
		if len(c.stories) >= maxStories {
			c.stories = map[string]*story{}
		}
		s = &story{at: map[int64]time.Time{}, turns: map[int64]*turn{}, calls: map[string]*callStory{}, seq: -1}
		c.stories[key] = s
	}
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		page, err := c.Read.Events(ctx, id, s.after, maxPageMessages)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Items {
			if err := s.add(e); err != nil {
				return nil, err
			}
		}
		if page.Cursor == "" {
			return s, nil
		}
	}
}

func (s *story) add(e Event) error {
	fact, err := e.Fact()
	if err != nil {
		return fmt.Errorf("read event %s: %w", e.ID, err)
	}
	if e.Seq != s.seq {
		s.seq, s.before, s.entry = e.Seq, s.entry, e.At
		s.at[e.Seq] = e.At
	}
	s.after = e.ID
	if s.newest = append(s.newest, e); len(s.newest) > 2*maxKeptEvents {
		s.newest = slices.Clone(s.newest[maxKeptEvents:])
	}
	switch e := fact.(type) {
	case run.Replied:
		s.turns[s.seq] = &turn{From: s.before, To: s.entry, Model: e.Model, Usage: e.Usage, Cost: e.Cost}
		for _, c := range e.Calls {
			s.calls[c.ID] = &callStory{From: s.entry}
		}
	case run.CallClaimed:
		s.call(e.Call).From = s.entry
	case run.CallSuspended:
		s.wait(e.Call, e.For)
	case run.CallUnknown:
		s.wait(e.Call, run.ForOutcome)
	case run.Decided:
		if e.Call == "" { // about tools: the calls that it lets run are calls of their own
			break
		}
		s.resume(e.Call)
		c := s.call(e.Call)
		c.Decided, c.From = append(c.Decided, decided{e, s.entry}), s.entry
	case run.CallPermitted:
		s.resume(e.Call)
	case run.Answered:
		s.resume(e.Call)
		if c := s.call(e.Call); e.Rerun {
			c.From = s.entry
		} else {
			c.To = s.entry
		}
	case run.CallFinished:
		s.call(e.Call).To = s.entry
	case run.LateResult:
		s.call(e.Call).To = s.entry
	case run.CallCancelled:
		s.resume(e.Call)
		s.call(e.Call).To = s.entry
	case run.Finished:
		for id, c := range s.calls {
			s.resume(id)
			if c.To.IsZero() {
				c.To = s.entry
			}
		}
	}
	return nil
}

func (s *story) call(id string) *callStory {
	if s.calls[id] == nil {
		s.calls[id] = &callStory{From: s.entry}
	}
	return s.calls[id]
}

func (s *story) wait(id string, what run.WaitFor) {
	c := s.call(id)
	c.Waits = append(c.Waits, wait{From: s.entry, For: cmp.Or(what, run.ForApproval)})
}

func (s *story) resume(id string) {
	if c := s.call(id); len(c.Waits) > 0 && c.Waits[len(c.Waits)-1].To.IsZero() {
		c.Waits[len(c.Waits)-1].To = s.entry
	}
}

// bar is a line of the timeline.
type bar struct {
	Kind     string // model, tool or wait
	Label    people.Text
	Link     string // the message or call on the page
	Took     string
	Spent    string // tokens and money of a turn
	X, Width int    // in thousandths of the timeline
	from, to time.Time
}

// newBars returns the timeline of the shown messages: for each turn its model, then its calls and what they waited for.
func (s *pageBuilder) newBars(items []chatItem) []bar {
	var bars []bar
	add := func(kind string, label people.Text, link, spent string, from, to time.Time) {
		took := formatTook(to.Sub(from))
		if to.IsZero() { // it ends where the story does so far
			to, took = s.story.entry, "not over"
		}
		if !from.IsZero() {
			bars = append(bars, bar{Kind: kind, Label: label, Link: link, Took: took, Spent: spent, from: from, to: to})
		}
	}
	for _, m := range items {
		link := fmt.Sprintf("#m-%d", m.N)
		if t := m.turn; t != nil {
			add("model", s.newText(t.Model), link, t.spent(), t.From, t.To)
		}
		if m.Call == nil {
			continue
		}
		c := s.story.calls[m.Call.ID]
		if c == nil {
			continue
		}
		for _, w := range c.Waits {
			add("wait", people.Text{{Text: "waits for " + string(w.For)}}, link, "", w.From, w.To)
		}
		known, _ := s.findCall(m.Call.ID)
		if n := len(c.Waits); n == 0 || !c.Waits[n-1].To.IsZero() && known.Executions > 0 { // else it has not run
			add("tool", m.Call.Tool, link, "", c.From, c.To)
		}
	}
	bars = bars[max(0, len(bars)-maxPageBars):]
	placeBars(bars)
	return bars
}

// placeBars gives bars their places. What is longer than half of all the work, such as a night until somebody approves,
// is shortened to that, so that the rest can be seen.
func placeBars(bars []bar) {
	var work time.Duration
	for _, b := range bars {
		if b.Kind != "wait" {
			work += b.to.Sub(b.from)
		}
	}
	longest := max(work/2, 10*time.Millisecond)
	var ticks []time.Time
	for _, b := range bars {
		ticks = append(ticks, b.from, b.to)
	}
	slices.SortFunc(ticks, time.Time.Compare)
	at, sum := map[int64]time.Duration{}, time.Duration(0)
	for i, t := range ticks {
		if i > 0 {
			sum += min(t.Sub(ticks[i-1]), longest)
		}
		at[t.UnixNano()] = sum
	}
	for i, b := range bars {
		x, end := at[b.from.UnixNano()], at[b.to.UnixNano()]
		bars[i].X = int(1000 * x / max(sum, 1))
		bars[i].Width = max(4, int(1000*(end-x)/max(sum, 1)))
		bars[i].X = min(bars[i].X, 1000-bars[i].Width)
	}
}

// advice says what to do about the error of a run.
var advice = map[run.ErrorCode]string{
	run.CodeModelFailed: "Check the model's address, key and quota. Then continue the run, or fork it from its newest " +
		"message.",
	run.CodeInteractionsExhausted: "Continue it for as many interactions again, or raise limits.interactions.",
	run.CodeTokensExhausted:       "Raise limits.tokens in agent.yaml, then continue the run.",
	run.CodeUSDExhausted:          "Raise limits.usd in agent.yaml, then continue the run.",
	run.CodePermissionFailed:      "Nobody could say what it may do. Ask who runs the permission backend; continue it.",
	run.CodeDefinition:            "The agent's definition does not fit any more. Mend agent.yaml and start a new run.",
	run.CodeMCPUnavailable:        "Check that the MCP server is reachable, or mark it optional. Then start a new run.",
	run.CodeUndoFailed:            "The call may still stand. Look at its error below, check, and take it back by hand.",
	run.CodeBreaker:               "The model went in circles. Look at its messages, mend prompt or tool, and fork.",
}

// loadTree returns the delegation tree of the run's root, each run behind its parent.
func (s *pageBuilder) loadTree(ctx context.Context) ([]treeNode, error) {
	root := cmp.Or(s.run.Root, s.run.ID)
	below := map[string][]RunHead{}
	q := RunQuery{Root: root, Limit: maxTree}
	for n := 0; n < maxTree; {
		p, err := s.Read.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, h := range p.Items {
			below[h.Parent] = append(below[h.Parent], h)
		}
		n += len(p.Items)
		if q.Cursor = p.Cursor; q.Cursor == "" {
			break
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	top := s.run
	if root != top.ID {
		var err error
		if top, err = s.Read.Run(ctx, root); err != nil {
			return nil, err
		}
	}
	below[""] = []RunHead{{ID: top.ID, Agent: top.Agent, Status: top.Status, Reason: top.Reason}}
	return s.appendChildren(nil, below, "", 0), nil
}

func (s *pageBuilder) appendChildren(out []treeNode, below map[string][]RunHead, of string, depth int) []treeNode {
	children := below[of]
	delete(below, of) // visit each run once, even in a cycle
	slices.SortStableFunc(children, func(a, b RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	for _, h := range children {
		out = append(out, treeNode{h.ID, s.newText(h.Agent), newStatusLabel(h.Status, h.Reason), min(depth, maxDepth),
			h.ID == s.run.ID})
		out = s.appendChildren(out, below, h.ID, depth+1)
	}
	return out
}
