package run

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/jsonx"
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

// Bounds of what a context builder gives, so that the entry that holds it also holds the first reply.
const (
	maxBuiltMessages = 200
)

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

// CodeBreaker ends a run whose model is told the very same again and again (seed 004, circuit breaker), or went in circles and could not
// even sum up.
const CodeBreaker ErrorCode = "breaker"

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

// IsText reports whether all of r that is text can be stored as it is.
func (r Reasoning) IsText() bool {
	return !slices.ContainsFunc([]string{r.Text, r.Signature, r.Provider, r.Model, r.Field}, func(s string) bool { return !utf8.ValidString(s) })
}

// StoredSize is how many bytes of an entry r takes, less what names it: what has to be escaped takes more than its length.
func (r Reasoning) StoredSize() int {
	return StoredLen(r.Text) + StoredLen(r.Signature) + base64.StdEncoding.EncodedLen(len(r.Redacted))
}

// turn lists the blocks of the model's turn as they stood: its text, in pieces where reasoning stands within it, its calls, and the
// reasoning among them. A block's index is its Source.Part, for ever. A piece of text that is empty keeps its index and is
// no message. ok is false where reasoning has a place that does not exist.
func (e Replied) turn() (blocks []Block, ok bool) {
	said, asked := 0, 0
	for _, r := range e.Reasoning {
		if !r.fits(e, said, asked) {
			return nil, false
		}
		blocks = append(blocks, Text{Text: e.Text[said:r.AfterText]})
		blocks = append(appendUses(blocks, e.Calls[asked:r.AfterCalls]), r.block())
		said, asked = r.AfterText, r.AfterCalls
	}
	blocks = append(blocks, Text{Text: e.Text[said:]})
	return appendUses(blocks, e.Calls[asked:]), true
}

// fits reports whether the place exists in e and does not lie before the one that is reached.
func (r RepliedReasoning) fits(e Replied, said, asked int) bool {
	behindText := r.AfterText == len(e.Text)
	return said <= r.AfterText && r.AfterText <= len(e.Text) && asked <= r.AfterCalls && r.AfterCalls <= len(e.Calls) &&
		(behindText || r.AfterCalls == 0 && utf8.RuneStart(e.Text[r.AfterText]))
}

func (r RepliedReasoning) block() Block {
	return Reasoning{Text: r.Text, Signature: r.Signature, Redacted: r.Redacted, Provider: r.Provider, Model: r.Model, Field: r.Field}
}

func appendUses(blocks []Block, calls []RepliedCall) []Block {
	for _, c := range calls {
		blocks = append(blocks, ToolUse{ID: c.ID, Name: c.Name, Input: c.Input})
	}
	return blocks
}

// unseen is a message that stands behind the model's turn and that no inference has carried.
type unseen struct {
	role  Role
	block Block
}

// behind is what the reply's fact adds behind the model's turn: why it was refused, or what stands for an empty summary. Its part is
// the number of the turn's blocks.
func (e Replied) behind() (unseen, bool) {
	switch {
	case e.Static != "":
		return unseen{RoleAssistant, Text{Text: e.Static}}, true
	case e.Correction.Owed() && !e.Correction.Ephemeral:
		return unseen{RoleUser, Text{Text: e.Correction.Text}}, true
	default:
		return unseen{}, false
	}
}

// part is block number n of those the reply's fact adds.
func (e Replied) part(n int) (Block, bool) {
	turn, ok := e.turn()
	if said, more := e.behind(); more {
		turn = append(turn, said.block)
	}
	if e.Dropped != "" {
		turn = append(turn, Text{Text: e.Dropped})
	}
	if !ok || n < 0 || n >= len(turn) {
		return nil, false
	}
	return turn[n], true
}

// verdictProblem says what is wrong with the reply's verdict, "" when nothing is: calls owe results and end nothing, and nobody is told
// what is wrong with a summary, which is the last word.
func (e Replied) verdictProblem() string {
	switch {
	case len(e.Calls) > 0 && (e.Summary || e.Correction != nil):
		return "a reply with calls is neither a summary nor refused"
	case e.Dropped != "" && len(e.Calls) == 0:
		return "only a reply with calls has dropped others"
	case (e.SystemText != "" || e.SystemBlob) && e.System == "" || e.SystemText != "" && e.SystemBlob:
		return "a system text stands once, beside its digest"
	case e.Halt != nil && (e.Halt.Code == "" || e.Summary):
		return "a stop policy has a code, and does not stop a summary"
	case e.Static != "" && (!e.Summary || e.Correction != nil):
		return "only an empty summary has a text that stands for it"
	case e.Correction != nil && (e.Correction.Owed() == e.Summary || e.Correction.Text == ""):
		return "a refused reply says why and when the model is told, a refused summary only why"
	default:
		return ""
	}
}

// USD is an amount of US dollars in units of 1e-12: a price of a million tokens with six decimals is a whole number of them for one
// token, so what is spent is added up without rounding. The zero value is nothing. In JSON it is a decimal number. Sums that do not fit
// stand at MaxUSD, which no limit reaches.
type USD int64

// UsdUnit is one dollar.
const UsdUnit = 1_000_000_000_000

// MaxUSD is the largest amount, about nine million dollars.
const MaxUSD USD = math.MaxInt64

// ErrUSD says which amounts of money are accepted.
var ErrUSD = errors.New("want a number of US dollars from 0 to 1000000 with at most 6 decimals")

// ParseUSD reads any amount that is a whole number of units.
func ParseUSD(s string) (USD, bool) {
	d, ok := jsonx.ParseDecimal(s)
	if !ok || d.Sign < 0 {
		return 0, false
	}
	if d.Sign == 0 {
		return 0, true
	}
	point, ok := d.Point.Int64()
	if !ok || point > 7 || point < -12 {
		return 0, false
	}
	zeros := int(point) + 12 - len(d.Digits)
	if zeros < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(d.Digits+strings.Repeat("0", zeros), 10, 64)
	return USD(n), err == nil
}

// String is the amount as a decimal number, without zeros at its end.
func (u USD) String() string {
	text := strconv.FormatInt(int64(u)/UsdUnit, 10)
	if rest := int64(u) % UsdUnit; rest != 0 {
		digits := strconv.FormatInt(rest+UsdUnit, 10)[1:]
		text += "." + strings.TrimRight(digits, "0")
	}
	return text
}

// MarshalJSON writes a number.
func (u USD) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalJSON reads a number that is a whole number of units.
func (u *USD) UnmarshalJSON(data []byte) error {
	v, ok := ParseUSD(string(data))
	if !ok {
		return ErrUSD
	}
	*u = v
	return nil
}

// Add is the sum, at most MaxUSD.
func (u USD) Add(v USD) USD {
	if u > MaxUSD-v {
		return MaxUSD
	}
	return u + v
}

// Of is the price of so many tokens, where u is that of a million.
func (u USD) Of(tokens int64) USD {
	over, n := bits.Mul64(uint64(max(0, u)/1_000_000), uint64(max(0, tokens)))
	if over != 0 || n > math.MaxInt64 {
		return MaxUSD
	}
	return USD(n)
}
