package run

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// CorrectionKind is what a policy found in a reply that is not the last word, for who shows it. "" = it was cut short, or is no output.
type CorrectionKind string

// The findings of TextHeuristic (semantics 4.2, 4.3).
const (
	KindIncomplete CorrectionKind = "incomplete" // it says that work is left
	KindDeflection CorrectionKind = "deflection" // it asks back, offers, narrates or refuses
	KindEmpty      CorrectionKind = "empty"      // neither text nor calls
)

// Tally is what TextHeuristic remembers of a run. It is committed with the replies that change it.
type Tally struct {
	Entered     int `json:"entered,omitempty"`   // calls whose tool was entered, of each round as it stood when the model answered it
	Deflections int `json:"deflected,omitempty"` // how often one was sent back
	Empty       int `json:"empty,omitempty"`     // empty replies in a row, the newest included
}

// Remember puts the tally into the fact, where it is another than s has.
func (t Tally) Remember(s *AgentState, e Replied) Replied {
	e.Tally = nil
	if t != s.Tally {
		e.Tally = &t
	}
	return e
}

// Room is what a request had left of its window, in tokens.
type Room struct {
	Left int `json:"left"`
	Of   int `json:"of"`
}

// Counted is what a provider counted of a request: how many tokens it took, and how many messages of the conversation it held, those that had
// been evicted before it included. The zero value: no count is known.
type Counted struct {
	Tokens  int64 `json:"tokens"`
	Through int64 `json:"through"`
}

// counted is the count that comes with a reply to s.
func (s *AgentState) counted(u Usage) Counted {
	tokens := u.Input + u.CacheRead + u.CacheWrite
	if tokens <= 0 {
		return Counted{}
	}
	return Counted{Tokens: tokens, Through: s.EvictedMessages + int64(s.Messages.Len())}
}

// maxBuiltMessages bounds how many messages a context builder gives.
const maxBuiltMessages = 200

// Problem says what is wrong with the fact, "" when nothing is.
func (e ContextBuilt) Problem() string {
	if len(e.Messages) > maxBuiltMessages {
		return fmt.Sprintf("%d messages, want at most %d", len(e.Messages), maxBuiltMessages)
	}
	for i, m := range e.Messages {
		switch m.Content.Block.(type) {
		case Text:
		case Media:
			if m.Role == RoleAssistant {
				return fmt.Sprintf("message %d: a model does not say media", i)
			}
		default:
			return fmt.Sprintf("message %d: want text or media", i)
		}
		if !m.Role.Valid() || m.Seen < 0 {
			return fmt.Sprintf("message %d: want a role of user or assistant, and a seenCount of zero or more", i)
		}
	}
	return ""
}

// contextBuilt puts the builder's messages before what was said to this run, whose words they introduce.
func (s *AgentState) contextBuilt(e ContextBuilt) error {
	if s.Built {
		return nil
	}
	if err := s.awake("context_built"); err != nil {
		return err
	}
	if s.Inferences > 0 {
		return &ApplyError{Event: "context_built", Problem: "the run has made an inference"}
	}
	if problem := e.Problem(); problem != "" {
		return &ApplyError{Event: "context_built", Problem: problem}
	}
	before := s.Messages.All()
	own := slices.IndexFunc(before, func(m Message) bool { return m.Source.Run == "" })
	if own < 0 {
		own = len(before)
	}
	s.Messages = Log[Message]{}
	for _, m := range before[:own] {
		s.Messages = s.Messages.Append(m)
	}
	for i, m := range e.Messages {
		s.say(m.Role, m.Content.Block, m.Seen, s.source(i))
	}
	for _, m := range before[own:] {
		s.Messages = s.Messages.Append(m)
	}
	s.Built, s.Unsaid = true, false
	return nil
}

// LifecycleNudge asks a model to go on, with a reply that was cut short or with its work.
const LifecycleNudge Lifecycle = "nudge"

// Cut is where the newest reply begins, if it came in pieces because its provider cut it short.
type Cut struct {
	From    int64 `json:"from,omitempty"`    // how many messages of the conversation stand before it, evicted ones included
	Prompts int   `json:"prompts,omitempty"` // how often the model was asked to go on; 0 = the reply came whole
}

// Continues reports whether the model is to go on with what it said.
func (c *Correction) Continues() bool {
	return c != nil && c.Lifecycle == LifecycleNudge && c.Kind == ""
}

// cut keeps where a reply in pieces begins; it is called before the reply's messages are said.
func (s *AgentState) cut(e Replied) {
	goesOn := s.Correction.Continues() && len(e.Calls) == 0
	if !goesOn {
		s.Cut = Cut{}
	}
	if !e.Correction.Continues() {
		return
	}
	if !goesOn {
		s.Cut.From = s.EvictedMessages + int64(s.Messages.Len())
	}
	s.Cut.Prompts++
}

// GoesOn reports whether the correction takes nothing back: the model is only to go on with what it said.
func (c *Correction) GoesOn() bool { return c.Continues() }

// Take is evicted without its conditions.
func (s *AgentState) Take(e Evicted) {
	s.Messages = s.Messages.DropFront(int(e.Total - s.EvictedMessages))
	s.EvictedMessages, s.Summary, s.Files = e.Total, e.Summary, e.Files
}

// SummaryShown is what is left of the messages that were evicted, as people see it: the notes, and the files they name.
func (s *AgentState) SummaryShown() string {
	if len(s.Files) == 0 {
		return s.Summary
	}
	return s.Summary + "\nFiles: " + strings.Join(s.Files, ", ")
}

// Watch is what guards remember of a run. It is committed with the replies that change it; only what the definition's guards ask for is
// kept, so it is bounded by the number of tools.
type Watch struct {
	FailedRounds int           `json:"failed,omitempty"`     // the newest ones, one after the other, whose every call failed, since the model was last told
	Duplicates   int           `json:"duplicates,omitempty"` // the newest rounds, one after the other, whose every call was a duplicate
	Failing      []FailingTool `json:"failing,omitempty"`    // tools that have not succeeded since they failed; never written in place
}

// FailingTool is a tool, by its original name, and in how many rounds it has failed since it last succeeded. Calls of one round count
// once: the model made them without knowing of each other.
type FailingTool struct {
	Tool   string `json:"tool"`
	Rounds int    `json:"rounds"`
}

// Equal reports whether two memories say the same.
func (w Watch) Equal(v Watch) bool {
	return w.FailedRounds == v.FailedRounds && w.Duplicates == v.Duplicates && slices.Equal(w.Failing, v.Failing)
}

// Failures is in how many rounds a tool has failed since it last succeeded.
func (w Watch) Failures(tool string) int {
	for _, f := range w.Failing {
		if f.Tool == tool {
			return f.Rounds
		}
	}
	return 0
}

// Broke reports whether the call says something against its tool: it failed, ran out of time or could not be called like that. What
// people, policy and plugins kept from running does not.
func (c Call) Broke() bool {
	return c.Reason == WhyToolError || c.Reason == WhyTimeout || c.Reason == WhyInvalidArguments
}

// Correction is why a reply without calls did not end the run. The verdict is committed with the reply, so that a fold never
// judges again.
type Correction struct {
	// Lifecycle is that of the inference in which the model is told. "" = none will be: a forced summary is not corrected.
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	Text      string    `json:"text"`
	Ephemeral bool      `json:"ephemeral,omitempty"` // the next request alone holds the text; the conversation does not

	Kind   CorrectionKind `json:"kind,omitempty"`
	Detail string         `json:"detail,omitempty"` // with a kind: what was wrong, in the words of who could not read it
}

// Owed reports whether the model is still to be told.
func (c *Correction) Owed() bool { return c != nil && c.Lifecycle != "" }

// What is wrong with a reply that the breaker counts: under TextRequireTool, one without any call; and in DialectXML, tool tags that hold no
// call, or one that lacks a name.
const (
	KindNoToolCall   CorrectionKind = "no_tool_call"
	KindMalformed    CorrectionKind = "malformed"
	KindMissingField CorrectionKind = "missing_field"
)

// Recovers reports whether a correction is one that the breaker counts.
func (c *Correction) Recovers() bool {
	return c != nil && (c.Kind == KindNoToolCall || c.Kind == KindMalformed || c.Kind == KindMissingField)
}

// Recovery is what the breaker remembers: how often in a row the model was told the very same of what it had done wrong. A tool that
// succeeds makes it forget. The zero Recovery remembers nothing.
type Recovery struct {
	Same   int    `json:"same"`
	Digest string `json:"digest"` // of what it was told
}

// Told is the recovery after the model is told a text.
func (r Recovery) Told(text string) Recovery {
	sum := sha256.Sum256([]byte(text))
	digest := hex.EncodeToString(sum[:16])
	if r.Digest != digest {
		return Recovery{Same: 1, Digest: digest}
	}
	r.Same++
	return r
}

// stoppedPrefix begins the reason of a run that was stopped.
const stoppedPrefix = "stopped:"

// Stopped is the reason of a run that something stopped, by its code.
func Stopped(code string) Reason { return Reason(stoppedPrefix + code) }

// Halt is the verdict of a stop policy. It is committed with the reply that it is about, so that a fold never judges again.
type Halt struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// Pace is what a stop policy remembers of the rounds before. Only what the definition's policies ask for is kept, so it is bounded.
type Pace struct {
	FailedRounds int      `json:"failed,omitempty"` // the newest ones, one after the other, of which no call succeeded
	Asked        []string `json:"asked,omitempty"`  // digests of the tools of the newest rounds that called any, the newest last; never written in place
}

// Whole is where all of a result is of which the conversation holds a part. The zero value is not valid.
type Whole struct {
	Call  string `json:"call,omitempty"` // whose result it is; "" = the call's own
	Blob  string `json:"blob"`           // the digest of its text, resolved under the run's tenant only
	Chars int    `json:"chars"`          // of that text: Unicode code points
}
