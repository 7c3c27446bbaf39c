package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// TextOutput returns a text as a JSON string.
func TextOutput(text string) json.RawMessage {
	out, _ := jsonx.MarshalVerbatim(text) // a string always marshals
	return out
}

// TextDropped tells the model which of its calls were left out of a round.
func TextDropped(d *Definition, calls []ReplyCall) string {
	names := run.Map(calls, func(c ReplyCall) string { return QuotedName(c.Name) })
	return d.Word(wordDropped, map[string]any{"Tools": strings.Join(names, ", ")})
}

// What the model is told about a call that did not simply run. The journal stores a copy of these texts when they are
// used, so a change here does not change past runs.
const (
	TextRunEnded    = "The run ended before this call was carried out. It had no effect."
	TextOutcomeLost = "The run ended while this call was under way. Nobody can say whether it took effect."

	TextExpired       = "Expired: nobody decided about this call in time. It was not carried out."
	TextInputExpired  = "Expired: nobody answered in time what this call asked for. It was not carried out."
	TextAnswerExpired = "Expired: the service was asked and did not answer in time. Nobody can say whether it will " +
		"still act."
	TextOutcomeExpired = "The outcome of this call is unknown: it was interrupted, and nobody could say in time whether " +
		"it took effect."
)

// OutcomeExpiry is how long people have to settle the unknown outcome of an interrupted call.
const OutcomeExpiry = 7 * 24 * time.Hour

// TextUnknownTool tells the model that a tool does not exist, which tools exist, and which names are closest.
func TextUnknownTool(tool string, d *Definition) string {
	names := run.Map(slices.Concat(d.Tools, d.Builtins(nil)), ToolSpec.ModelName)
	text := fmt.Sprintf("There is no tool %s. The tools are: %s.", QuotedName(tool), strings.Join(names, ", "))
	if closest := Closest(tool, names); len(closest) > 0 {
		text += " " + d.Word(wordClosestTool, map[string]any{"Names": strings.Join(closest, " or ")})
	}
	return text
}

// TextPatchRefused tells the model that a tool ran, but that its change of the run's state was refused. The tool's
// result follows this text.
func TextPatchRefused(tool string, err error) string {
	return tool + " ran, but what it changed of the run's state was refused: " + err.Error() + "\n"
}

// TextDenied tells the model that a person denied the call.
func TextDenied(by, note string) string {
	return "Denied by " + by + ". The call was not carried out." + QuotedNote("Their note", note)
}

// TextRequestFull tells the model that people are asked about other calls of the reply, and this one has no room there.
func TextRequestFull(tool string) string {
	return "Nobody was asked about " + tool + ", which needs a person: the request about the other calls has no room " +
		"for it. The call is not done: make it again once those are decided."
}

// TextCallCancelled tells the model that a person cancelled the call without a verdict.
func TextCallCancelled(by, note string) string {
	return "Called off by " + by + ". The call was not carried out." + QuotedNote("Their note", note)
}

// TextAskApproval follows the description of a tool that needs an approval under an advisory policy.
func TextAskApproval(with, comments string) string {
	return "This tool requires an approval: get it with " + with + " before you call it." +
		QuotedNote("The last answer", comments)
}

// TextPlaceholder replaces the result of an open call in requests.
func TextPlaceholder(c run.Call) string {
	var state string
	switch {
	case c.Status == run.StatusResuming:
		state = "approved and paused, and runs once the other requests have been answered"
	case c.Wait != nil && c.Wait.For == run.ForOutcome:
		state = "paused: it was interrupted, and somebody has to say whether it took effect"
	case c.Wait != nil && c.Wait.For != run.ForApproval:
		state = "awaiting its answer, paused"
	default:
		state = "awaiting approval, paused: it was not carried out yet"
	}
	return "This call is " + state + ". Its result will stand here as soon as there is one. Do not repeat the call; " +
		"go on with what does not depend on it, or say what is still open."
}

// textLateResults names the calls whose results have just replaced placeholders. It comes at the conversation's end.
func textLateResults(messages []run.Message, calls []string) string {
	tools := map[string]string{}
	for _, m := range messages {
		if u, ok := m.Block.(run.ToolUse); ok {
			tools[u.ID] = u.Name
		}
	}
	named := run.Map(calls, func(id string) string { return tools[id] + " (" + id + ")" })
	return "Calls of yours from before now have their results, which stand above with the calls: " +
		strings.Join(named, ", ") + ". Go on from there."
}

// TextTimeout tells the model that a tool that may be repeated ran out of time.
func TextTimeout(tool string) string { return tool + " ran out of time." }

// TextNothing replaces an empty result, which a model could mistake for a fault (seed 000).
func TextNothing(tool string) string { return tool + " ran and gave no response." }

// TextMedia is the result of a tool that returned only media. The media follow it.
func TextMedia(media []run.Media) string {
	return "The tool gave " + strings.Join(run.Map(media, MediaName), ", ") + "."
}

// TextMediaLeftOut says which medium could not be stored or shown, and why.
func TextMediaLeftOut(m run.Media, why string) string {
	return "[" + MediaName(m) + " is left out: " + why + "]"
}

// TextMediaTooLarge replaces media that a request has no room for.
func TextMediaTooLarge(m run.Media, size, most int64) string {
	return fmt.Sprintf("[%s is not shown: it has %d bytes, and one request carries at most %d bytes of "+
		"media, the newest first]",
		MediaName(m), size, most)
}

// QuotedName returns a name that a model made up, quoted and cut to 64 characters.
func QuotedName(name string) string {
	r := []rune(ValidText(name))
	return strconv.Quote(string(r[:min(len(r), 64)]))
}

// MediaName returns the name and type of a file for texts.
func MediaName(m run.Media) string { return strings.TrimSpace(m.Name + " (" + m.MediaType + ")") }

// TextEdited precedes the result of a call whose arguments a person changed (A8).
func TextEdited(by, args string) string {
	return by + " changed the arguments of this call before it ran. It ran with: " + args + "\n"
}

// TextCancelled is the last text of a run that a person cancelled.
func TextCancelled(by, note string) string {
	return "The run was cancelled by " + by + " and stopped here." + QuotedNote("Their note", note)
}

// TextInterrupted tells a run that continues a cancelled one at which stage that one was cancelled.
func TextInterrupted(stage, by, note string) string {
	return "The previous run was interrupted " + stage + ": it was cancelled by " + by + " and stopped here." +
		QuotedNote("Their note", note)
}

// TextOutputRefused tells the model why its final answer was not accepted and what is wanted, in the form of seed 000.
func TextOutputRefused(d *Definition, err error) string {
	text := struct {
		Type    string          `json:"type"`
		Name    string          `json:"name"`
		Message string          `json:"message"`
		Schema  json.RawMessage `json:"schema,omitempty"`
	}{Type: "error", Name: "invalid_output", Message: d.Word(wordOutputRefused, map[string]any{"Problem": err.Error()})}
	if len(d.Output.Schema) <= 4096 { // the request contains a longer schema
		text.Schema = d.Output.Schema
	}
	out, _ := jsonx.MarshalVerbatim(text) // a checked schema always marshals
	return string(out)
}

// TextMediaSeen replaces media that an earlier request has contained.
func TextMediaSeen(d *Definition, m run.Media) string {
	return d.Word(wordMediaSeen, map[string]any{"Media": strings.TrimSpace(m.Name + " " + m.MediaType + "@base64")})
}

// Notices returns d's texts for the flags of a request.
func (d *Definition) Notices(r Request) (n Notices) {
	if r.Exhausted {
		n.Exhausted = d.Word(wordExhausted, map[string]any{"Max": strconv.Itoa(r.Interactions.Max)})
	}
	if r.Output.JSON && len(r.Output.Schema) == 0 {
		n.JSONOnly = d.Word(wordJSONOnly, nil)
	}
	return n
}

// Bounded returns the text of a Go error in the form in which it is stored: valid UTF-8 of at most 2000 characters.
func Bounded(text string) string { return cut(ValidText(text), 2000) }

// cut shortens a text to that many characters and marks the cut.
func cut(text string, most int) string {
	r := []rune(text)
	if len(r) > most {
		return string(r[:most]) + " […]"
	}
	return string(r)
}

// QuotedNote returns a person's note as quoted data of at most 1000 characters. Nothing in the note can end the quotes,
// the line or a surrounding XML element (C4).
func QuotedNote(label, note string) string {
	if note == "" {
		return ""
	}
	return " " + label + ": " + strings.ReplaceAll(strconv.Quote(cut(note, 1000)), "<", `\u003c`)
}
