package cli

import (
	"io"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// writeApproval shows a request: facts first, made by the runtime, then the complete arguments (B1, B2), and what is not to be trusted last.
func writeApproval(w io.Writer, a approval.Approval, v show.View) error {
	return show.WriteText(w, show.BuildRequest(a, v), 0)
}

// deciders names who may decide.
func deciders(approvers []string, above [][]string) string {
	return show.ApproversText(approvers, above).String()
}

func noteOf(note string) string {
	if note == "" {
		return ""
	}
	return ": " + text(note)
}

// ways are the commands that answer a request.
func (p *program) ways(a approval.Approval) []string {
	if a.Kind == approval.KindOutcome {
		return []string{
			p.hint("answer", a.Run, a.Call(), "--rerun") + "   carries it out again",
			p.hint("answer", a.Run, a.Call(), "--result", "JSON") + "   it took effect, with this result",
			p.hint("answer", a.Run, a.Call(), "--error", "TEXT") + "   it failed",
		}
	}
	if a.Kind == approval.KindInput {
		return []string{p.hint("approve", a.ID, "--result", "JSON") + "   answers; without --result the answer is true", p.hint("deny", a.ID)}
	}
	ways := []string{p.hint("approve", a.ID), p.hint("deny", a.ID)}
	if len(a.Permissions) > 1 {
		ways = append(ways, p.hint("approve", a.ID, "--tool", line(a.Tools[0]))+"   decides about one tool")
	}
	return append(ways, p.hint("ask", a.ID, "--note", "TEXT")+"   decides nothing")
}
