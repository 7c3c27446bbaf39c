package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/show"
)

// Formats of foreign text, on one line and on several.
var (
	line  = show.Line
	lines = show.Lines
)

// stamp formats a time: in the zone of the person at a terminal, else in UTC.
func (p *program) stamp(t time.Time) string { return show.FormatTimeIn(t, p.zone) }

// quoteText returns foreign text as a quoted value with secrets masked.
func quoteText(s string) string { return `"` + show.Foreign(s).String() + `"` }

// truncate shortens a line of progress. Nothing that people decide on is truncated.
func truncate(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}

// writeApproval prints the document of a request.
func writeApproval(w io.Writer, a approval.Approval, v show.View) error {
	if _, err := fmt.Fprintf(w, "approval %s (%s)\n", a.ID, a.Status); err != nil {
		return err
	}
	return show.WriteText(w, show.BuildDocument(a, v), 0)
}

// formatDeciders returns who may decide.
func formatDeciders(approvers []string, above [][]string) string {
	return show.ApproversText(approvers, above).String()
}

func noteSuffix(note string) string {
	if note == "" {
		return ""
	}
	return ": " + quoteText(note)
}

// answerCommands returns the commands that answer a request.
func (p *program) answerCommands(a approval.Approval) []string {
	if a.Kind == approval.KindOutcome {
		return []string{
			p.commandLine("answer", a.Run, a.Call(), "--rerun") + "   carries it out again",
			p.commandLine("answer", a.Run, a.Call(), "--result", "JSON") + "   it took effect, with this result",
			p.commandLine("answer", a.Run, a.Call(), "--error", "TEXT") + "   it failed",
		}
	}
	if a.Kind == approval.KindInput {
		return []string{p.commandLine("approve", a.ID, "--result",
			"JSON") + "   answers; without --result the answer is true", p.commandLine("deny", a.ID)}
	}
	ways := []string{p.commandLine("approve", a.ID), p.commandLine("deny", a.ID)}
	if c := a.ChannelsOf(""); !c.Allow(agent.ViaCLI) {
		ways[0] = "approve it by " + c.Words()
	}
	if len(a.Permissions) > 1 {
		ways = append(ways, p.commandLine("approve", a.ID, "--tool", line(a.Tools[0]))+"   decides about one tool")
	}
	return append(ways, p.commandLine("ask", a.ID, "--note", "TEXT")+"   decides nothing")
}

// readJSONArg reads an argument that is JSON, @FILE, or - for standard input. Errors name the flag and do not repeat
// the value.
func (p *program) readJSONArg(flag, arg string) (json.RawMessage, error) {
	data, err := []byte(arg), error(nil)
	if arg == "-" {
		data, err = io.ReadAll(p.stdin)
	} else if file, ok := strings.CutPrefix(arg, "@"); ok {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	v, err := jsonx.CompactJSON(data, jsonx.JSONLimits{})
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	return v, nil
}

// formatOutput returns a run's output for people: a text as it is, anything else as JSON.
func formatOutput(raw json.RawMessage) string {
	var s string
	switch err := json.Unmarshal(raw, &s); {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case err == nil:
		return lines(s)
	default:
		return lines(string(raw))
	}
}
