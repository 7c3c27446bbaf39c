package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What the model is told when a call did not simply run. These texts are copied into the journal when they are used, so a
// change here changes no run that has happened.
const (
	textRunEnded       = "The run ended before this call was carried out. It had no effect."
	textOutcomeUnknown = "The run ended while this call was under way. Nobody can say whether it took effect."
)

// OutcomeExpiry is how long somebody has to say what became of an interrupted call.
const OutcomeExpiry = 7 * 24 * time.Hour

// maxNote bounds a person's note in a text for the model, in runes (C4).
const maxNote = 1000

func textDeniedByRule(tool, note string) string {
	return "The policy of this agent denies calling " + tool + " like this. Do not repeat the call." + quotedNote("Note", note)
}

func textUnknownTool(tool string, d *Definition) string {
	names := make([]string, len(d.Tools))
	for i, t := range d.Tools {
		names[i] = t.ModelName()
	}
	return fmt.Sprintf("There is no tool %s. The tools are: %s.", strconv.Quote(tool), strings.Join(names, ", "))
}

func textInvalidArguments(tool string, err error) string {
	return "The arguments do not fit the schema of " + tool + ", so it was not called:\n" + err.Error()
}

func textVoided(tool string) string {
	return "The approval of this call of " + tool + " does not fit what would run now, so it was not carried out."
}

func textGrantExpired(tool string) string {
	return "The approval of this call of " + tool + " expired before it could run, so it was not carried out."
}

// TextDenied tells the model that a person denied the call.
func TextDenied(by, note string) string {
	return "Denied by " + by + ". The call was not carried out." + quotedNote("Their note", note)
}

// TextCallCancelled tells the model that a person called the call off without judging it.
func TextCallCancelled(by, note string) string {
	return "Called off by " + by + ". The call was not carried out." + quotedNote("Their note", note)
}

// TextExpired tells the model that nobody decided in time.
func TextExpired() string {
	return "Expired: nobody decided about this call in time. It was not carried out."
}

// TextOutcomeExpired tells the model that nobody could say in time what became of the call.
func TextOutcomeExpired() string {
	return "The outcome of this call is unknown: it was interrupted, and nobody could say in time whether it took effect."
}

// TextTimeout tells the model that a tool which may be repeated ran out of time.
func TextTimeout(tool string) string {
	return tool + " ran out of time."
}

// TextMedia names what a tool gave that says nothing else; the media themselves stand behind it.
func TextMedia(media []Media) string {
	names := make([]string, len(media))
	for i, m := range media {
		names[i] = mediaName(m)
	}
	return "The tool gave " + strings.Join(names, ", ") + "."
}

// TextMediaLeftOut says that something a tool gave could not be kept, and why.
func TextMediaLeftOut(m Media, why string) string {
	return "[" + mediaName(m) + " is left out: " + why + "]"
}

// textMediaTooLarge stands in a request for media that it cannot carry.
func textMediaTooLarge(m Media, size, most int64) string {
	return fmt.Sprintf("[%s is not shown: it has %d bytes, and one request carries at most %d bytes of media, the newest first]",
		mediaName(m), size, most)
}

func mediaName(m Media) string { return strings.TrimSpace(m.Name + " (" + m.MediaType + ")") }

// TextEdited stands before the result of a call whose arguments a person changed (A8).
func TextEdited(by, args string) string {
	return by + " changed the arguments of this call before it ran. It ran with: " + args + "\n"
}

func textCancelled(by, note string) string {
	return "The run was cancelled by " + by + " and stopped here." + quotedNote("Their note", note)
}

// quotedNote is a person's note as quoted, bounded data.
func quotedNote(label, note string) string {
	if note == "" {
		return ""
	}
	r := []rune(note)
	if len(r) > maxNote {
		r = append(r[:maxNote], []rune(" […]")...)
	}
	return " " + label + ": " + strconv.Quote(string(r))
}
