package agent

import (
	"encoding/base64"
	"slices"
	"sort"
	"unicode/utf8"
)

// maxReasoning bounds a reply's reasoning, in bytes as they are stored, so that the entry it is in can be.
const maxReasoning = 192 << 10

// plannedReasoning places a reply's reasoning among the text and the calls that are kept of it; kept are the places of those calls
// in the reply. What cannot be stored byte for byte is not stored, and of a reply with too much of it none is: changed or
// in part it would be worth nothing to who wrote it.
func plannedReasoning(all []ReplyReasoning, text string, kept []int) []RepliedReasoning {
	var out []RepliedReasoning
	said, asked, size := 0, 0, 0
	for _, r := range all {
		if r.empty() || !r.isText() {
			continue
		}
		if size += r.storedSize(); size > maxReasoning {
			return nil
		}
		said, asked = max(said, runeStart(text, r.AfterText)), max(asked, sort.SearchInts(kept, r.AfterCalls))
		if asked > 0 || r.AfterCalls > 0 { // behind a call that is dropped, too, is behind all of the text
			said = len(text)
		}
		out = append(out, RepliedReasoning{
			Text: r.Text, Signature: r.Signature, Redacted: r.Redacted, Provider: r.Provider, Model: r.Model, Field: r.Field, AfterText: said, AfterCalls: asked,
		})
	}
	return out
}

// isText reports whether all of r that is text can be stored as it is.
func (r Reasoning) isText() bool {
	return !slices.ContainsFunc([]string{r.Text, r.Signature, r.Provider, r.Model, r.Field}, func(s string) bool { return !utf8.ValidString(s) })
}

// storedSize is how many bytes of an entry r takes, less what names it: what has to be escaped takes more than its length.
func (r Reasoning) storedSize() int {
	return StoredLen(r.Text) + StoredLen(r.Signature) + base64.StdEncoding.EncodedLen(len(r.Redacted))
}

// runeStart is n, or the nearest place before it where a text may be cut.
func runeStart(text string, n int) int {
	n = min(max(n, 0), len(text))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
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
	case e.Correction.owed() && !e.Correction.Ephemeral:
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
	case e.Correction != nil && (e.Correction.owed() == e.Summary || e.Correction.Text == ""):
		return "a refused reply says why and when the model is told, a refused summary only why"
	default:
		return ""
	}
}
