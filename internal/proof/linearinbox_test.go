package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// inbox is the sequential specification of messages to a run: a log that accepts each id once, until the run's end
// closes it.
type inbox struct {
	log    string // the messages in order, each as id/text and a space
	closed bool
}

// The operations besides cancel and finish.
type (
	send struct{ id, text string }
	read struct{}
)

// readResult is the answer to an operation on the inbox.
type readResult struct {
	answer answer // of send: taken, finished, other, uncertain
	log    string // of read
	closed bool
	left   bool // the run has ended and has not drained all
}

const other answer = "the id was another message's"

func inboxModel() porcupine.Model {
	return specification(inbox{log: "first "}, inbox.statesAfter)
}

func (b inbox) statesAfter(in any, out readResult) []inbox {
	switch in := in.(type) {
	case send:
		return b.sent(in, out.answer)
	case read:
		if out.answer == uncertain || b.log == out.log && b.closed == out.closed && !out.left {
			return []inbox{b}
		}
	case finish:
		return []inbox{b, {b.log, true}}
	case cancel:
		if out.answer == uncertain {
			return []inbox{b, {b.log, true}}
		}
		return []inbox{{b.log, true}}
	}
	return nil
}

func (b inbox) sent(in send, out answer) []inbox {
	will, now := taken, b
	switch known := b.text(in.id); {
	case known != "" && known != in.text:
		will = other
	case known != "":
	case b.closed:
		will = finished
	default:
		now.log += in.id + "/" + in.text + " "
	}
	switch out {
	case uncertain:
		return []inbox{b, now}
	case will:
		return []inbox{now}
	default:
		return nil
	}
}

// text returns the text of the message with that id; "" = there is none.
func (b inbox) text(id string) string {
	for _, m := range strings.Fields(b.log) {
		if text, ok := strings.CutPrefix(m, id+"/"); ok {
			return text
		}
	}
	return ""
}

// inboxFixture is a world whose run calls tools while people send messages.
type inboxFixture struct {
	*world
	*history
	inputs *runtime.Inputs
}

func newInboxFixture(t *testing.T, plain store.Table, seed int64, wrap func(store.Table) store.Table) *inboxFixture {
	m := &model{}
	for i := range 1 + seed%4 {
		m.replies = append(m.replies, agent.Reply{Calls: []agent.ReplyCall{{ID: call(int(i)), Name: "look", Input: json.RawMessage(fmt.Sprintf(`{"at":%d}`, i))}}})
	}
	if seed%3 == 0 { // it is parked meanwhile
		m.replies = append(m.replies, agent.Reply{Calls: []agent.ReplyCall{{ID: "p", Name: "refund", Input: json.RawMessage(initial)}}})
	}
	w := newWorld(t, plain, seed, refundAgent(t, 1), m, wrap)
	return &inboxFixture{world: w, history: &history{}, inputs: &runtime.Inputs{Ports: w.ports}}
}

// send sends a message, and sometimes repeats it, or another text under its id.
func (p *inboxFixture) send(who int, in send) {
	p.do(who, in, func() (any, bool) {
		err := p.inputs.Send(p.t.Context(), tenant, p.run, in.id, "user:ana", []run.UserBlock{{Block: run.Text{Text: "#" + in.id + "/" + in.text}}})
		switch {
		case err == nil:
			return readResult{answer: taken}, false
		case errors.Is(err, runtime.ErrRunFinished):
			return readResult{answer: finished}, false
		case errors.Is(err, store.ErrOtherInput):
			return readResult{answer: other}, false
		default:
			return readResult{answer: uncertain}, true
		}
	})
}

// read reads the run's drained messages and its inbox. A run that has ended has drained everything.
func (p *inboxFixture) read(who int, journal *store.Journal) {
	p.do(who, read{}, func() (any, bool) {
		l, err := journal.Load(p.t.Context(), tenant, p.run)
		if err != nil {
			return readResult{answer: uncertain}, true
		}
		out := readResult{log: p.drained(&l.State), closed: l.State.Status == run.RunDone}
		for _, e := range l.Inbox {
			in, ok := e.(run.InputReceived)
			if !ok {
				continue
			}
			out.left = out.closed
			out.log += content(in)
		}
		return out, false
	})
}

// drained returns the messages of people that a run has drained, in order.
func (p *inboxFixture) drained(s *run.AgentState) string {
	entries, err := store.NewJournal(p.plain, 0).Entries(p.t.Context(), tenant, p.run, 0, int(s.Entries))
	if err != nil {
		p.t.Error(err)
	}
	log := "first "
	for _, e := range entries {
		for _, event := range e.Events {
			if in, ok := event.(run.InputReceived); ok {
				log += content(in)
			}
		}
	}
	return log
}

func content(in run.InputReceived) string {
	text, _ := in.Blocks[0].Block.(run.Text)
	return strings.TrimPrefix(text.Text, "#") + " "
}

// modelMessages returns the messages of people that the model was given, in order.
func modelMessages(s *run.AgentState) (log string) {
	for _, m := range s.Messages.All() {
		if text, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser && strings.HasPrefix(text.Text, "#") {
			log += text.Text[1:] + " "
		}
	}
	return log
}

func (p *inboxFixture) recordAttempt(attempt func() (runtime.Route, error)) (runtime.Route, error) {
	called := p.now.Add(1)
	r, err := attempt()
	if err != nil || r.Next == runtime.NextDone || r.Next == runtime.NextFailed {
		p.add(porcupine.Operation{Input: finish{}, Output: readResult{}, Call: called, Return: p.now.Add(1)}, err != nil)
	}
	return r, err
}

// runToEnd runs all operations concurrently, and then the run to its end.
func (p *inboxFixture) runToEnd() {
	(&fakeMachine{p.world, p.recordAttempt}).finish(p.runConcurrently())
	p.send(8, send{"late", "hello"})
	p.read(8, store.NewJournal(p.plain, 0))
	l, err := store.NewJournal(p.plain, 0).Load(p.t.Context(), tenant, p.run)
	require.NoError(p.t, err)
	if l.State.Reason == run.ReasonNaturalEnd {
		require.Equal(p.t, p.drained(&l.State), modelMessages(&l.State), "the model has heard all of it, once and in order")
	}
}

// runConcurrently runs sends, reads, the run itself and a cancel concurrently.
func (p *inboxFixture) runConcurrently() runtime.Route {
	var people sync.WaitGroup
	halt := (&fakeMachine{p.world, p.recordAttempt}).start(runtime.Route{Next: runtime.NextStep})
	for who := range 4 {
		people.Go(func() {
			for range 4 {
				pause(time.Duration(p.drawN(3)) * time.Millisecond)
				p.send(who+1, send{fmt.Sprint("m", p.drawN(7)), []string{"hello", "hello", "hello", "bye"}[p.drawN(4)]})
			}
		})
	}
	for who := 5; who < 7; who++ {
		journal := p.ports.Journal
		if who == 5 {
			journal = store.NewJournal(p.ports.Table, 0)
		}
		people.Go(func() {
			for range 5 {
				pause(time.Duration(p.drawN(3)) * time.Millisecond)
				p.read(who, journal)
			}
		})
	}
	if p.drawN(4) == 0 {
		people.Go(func() {
			pause(time.Duration(p.drawN(8)) * time.Millisecond)
			p.do(7, cancel{}, func() (any, bool) {
				_, err := (&runtime.Canceller{Ports: p.ports, Definitions: p.definition}).Cancel(p.t.Context(), tenant, p.run, "user:boss", "enough")
				if err != nil {
					return readResult{answer: uncertain}, true
				}
				return readResult{}, false
			})
		})
	}
	people.Wait()
	last := halt()
	p.read(8, store.NewJournal(p.plain, 0))
	return last
}

// TestInboxIsLinearizable: messages are accepted once and in one order for all readers, and the end closes the inbox.
func TestInboxIsLinearizable(t *testing.T) {
	for _, table := range tables {
		t.Run(table.name, func(t *testing.T) {
			open := table.open(t)
			for seed := range int64(histories(t, table.few)) {
				p := newInboxFixture(t, open(), seed, nil)
				p.runToEnd()
				p.require(t, inboxModel(), seed)
			}
		})
	}
}
