package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// StartMessages returns a run's first messages: the user's message, or the input as one user text without the
// parent-subject key. Exactly one of the two must be given. input must be strict JSON.
func StartMessages(said []run.UserBlock, input json.RawMessage) ([]run.UserBlock, error) {
	switch {
	case len(said) > 0 && input != nil:
		return nil, errors.New("message and input are given; want one of them")
	case len(said) > 0:
		return said, nil
	case input == nil:
		return nil, errors.New("nothing to start with; want message or input")
	}
	text, err := jsonx.CompactJSON(input, jsonx.JSONLimits{})
	if err != nil {
		return nil, err
	}
	if text, err = agent.WithoutParent(text); err != nil {
		return nil, err
	}
	return []run.UserBlock{{Block: run.Text{Text: string(text)}}}, nil
}

// ParseMessage reads a message in the form that clients send: a string, or a list of content blocks that a user may
// send. It checks media with agent.CheckMedia, and does not look for their blobs.
func ParseMessage(raw json.RawMessage) ([]run.UserBlock, error) {
	var text string
	if err := json.Unmarshal(raw, &text); err == nil {
		if text == "" {
			return nil, errors.New("the message is empty")
		}
		return []run.UserBlock{{Block: run.Text{Text: text}}}, nil
	}
	var blocks []run.UserBlock
	if err := json.Unmarshal(raw, &blocks); err != nil {
		return nil, errors.New("want a string or a list of content blocks")
	}
	if len(blocks) == 0 {
		return nil, errors.New("the message is empty")
	}
	if err := run.CheckUserBlocks(blocks); err != nil {
		return nil, err
	}
	n := 0
	for i, b := range blocks {
		m, ok := b.Block.(run.Media)
		if !ok {
			continue
		}
		if n++; n > agent.MaxMessageMedia {
			return blocks, fmt.Errorf("want at most %d media in a message", agent.MaxMessageMedia)
		}
		if err := agent.CheckMedia(m); err != nil {
			return blocks, fmt.Errorf("block %d: %w", i, err)
		}
	}
	return blocks, nil
}

// ApplyWithEvicted applies an entry to s as ApplyEntry does, and lists the messages that it evicts, oldest first.
func ApplyWithEvicted(s run.AgentState, e run.Entry) (left []SeenMessage, after run.AgentState, err error) {
	if after, err = run.ApplyEntry(s, e); err != nil || after.EvictedMessages == s.EvictedMessages ||
		after.Entries == s.Entries {
		return nil, after, err
	}
	d := run.NewDraft(s, e.Writer, e.Time)
	for _, fact := range e.Events {
		before := d.State
		if err := d.Add(fact); err != nil {
			return nil, s, err
		}
		if _, evicts := fact.(run.Evicted); evicts {
			for _, m := range before.Messages.All()[:d.State.EvictedMessages-before.EvictedMessages] {
				left = append(left, SeenMessage{Message: m, SeenCount: m.Seen(before.Inferences), Evicted: true})
			}
		}
	}
	return left, after, nil
}

// The errors of ContinueFrom and ForkFrom. No fork contains an open call that undoes another one: it would run twice.
var (
	ErrNotFinished = errors.New("the run has not finished (decide what it waits for, or cancel it)")
	ErrCallRunning = errors.New("a call was running at that entry")
	ErrUndoing     = errors.New("the run undoes a call, which is done once")
)

// ContinueFrom returns the origin of a run that continues the finished run s. The error is ErrNotFinished if s is not
// finished.
func ContinueFrom(s *run.AgentState) (run.Origin, error) {
	if s.Status != run.RunDone {
		return run.Origin{}, fmt.Errorf("continue run %s, which is %s: %w", s.Run, s.Status, ErrNotFinished)
	}
	return run.Origin{Kind: run.OriginContinues, Run: s.Run, Seq: s.Seq(), At: s.ReadFrom()}, nil
}

// ForkFrom returns the origin of the run child that forks s, a run as of one of its entries. The error is ErrUndoing,
// or ErrCallRunning if a call was claimed and had no result: only the journal of that run can say whether it happened.
func ForkFrom(s *run.AgentState, child string, now time.Time) (run.Origin, error) {
	o := run.Origin{Kind: run.OriginFork, Run: s.Run, Seq: s.Seq(), At: s.ReadFrom()}
	r := streaksOf(s)
	if i := r.find(sameMistake); i >= 0 { // a fork does not give the model more tries at the same
		o.Memory = map[string]json.RawMessage{streaksMemory: run.Remember(streaksMemory, r[i:i+1]).Value}
	}
	for _, c := range s.Live {
		switch {
		case c.Undoes != "" && c.Open():
			return run.Origin{}, fmt.Errorf("fork run %s at %d: %w", s.Run, s.Seq(), ErrUndoing)
		case c.Status == run.StatusRunning:
			return run.Origin{}, fmt.Errorf("fork run %s at %d: call %s: %w", s.Run, s.Seq(), c.ID, ErrCallRunning)
		case c.Entered():
			o.Unknown = append(o.Unknown, run.CallUnknown{
				Call: c.ID, Approval: run.ApprovalID(child, c.ID, 1),
				Expires: now.UTC().Truncate(time.Millisecond).Add(agent.OutcomeExpiry),
			})
		}
	}
	return o, nil
}

// OriginOf returns where a run began, from its first entry; nil if it began by itself.
func OriginOf(first run.Entry) *run.Origin {
	for _, e := range first.Events {
		if s, ok := e.(run.RunStarted); ok {
			return s.From
		}
	}
	return nil
}
