package cli

import (
	"io"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// writeApproval shows a request: facts first, made by the runtime, then the complete arguments (B1, B2), and what is not to be trusted last.
func writeApproval(w io.Writer, a approval.Approval, v show.View) error {
	return show.WriteText(w, show.Of(a, v), 0)
}

// formatDeciders names who may decide.
func formatDeciders(approvers []string, above [][]string) string {
	return show.Deciders(approvers, above).String()
}

func noteSuffix(note string) string {
	if note == "" {
		return ""
	}
	return ": " + quoteText(note)
}

// answerCommands are the commands that answer a request.
func (p *program) answerCommands(a approval.Approval) []string {
	if a.Kind == approval.KindOutcome {
		return []string{
			p.commandLine("answer", a.Run, a.Call(), "--rerun") + "   carries it out again",
			p.commandLine("answer", a.Run, a.Call(), "--result", "JSON") + "   it took effect, with this result",
			p.commandLine("answer", a.Run, a.Call(), "--error", "TEXT") + "   it failed",
		}
	}
	if a.Kind == approval.KindInput {
		return []string{p.commandLine("approve", a.ID, "--result", "JSON") + "   answers; without --result the answer is true", p.commandLine("deny", a.ID)}
	}
	ways := []string{p.commandLine("approve", a.ID), p.commandLine("deny", a.ID)}
	if len(a.Permissions) > 1 {
		ways = append(ways, p.commandLine("approve", a.ID, "--tool", line(a.Tools[0]))+"   decides about one tool")
	}
	return append(ways, p.commandLine("ask", a.ID, "--note", "TEXT")+"   decides nothing")
}
