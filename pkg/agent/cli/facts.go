package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// risk says in words what an effect means to who decides.
var risk = map[agent.Effect]string{
	agent.EffectRead:          "read: it changes nothing",
	agent.EffectIdempotent:    "idempotent: doing it twice is the same as once",
	agent.EffectNonIdempotent: "non_idempotent: it changes something, and doing it twice is not the same as once",
}

// writeApproval shows a request: facts first, made by the runtime, then the complete arguments (B1, B2).
func writeApproval(w io.Writer, a approval.Approval, subject string) error {
	effect, ok := risk[a.Effect]
	if !ok {
		effect = risk[agent.EffectNonIdempotent]
	}
	fact := func(name, value string) { fmt.Fprintf(w, "  %-10s %s\n", name, value) }
	fmt.Fprintf(w, "approval %s (%s)\n", a.ID, a.Status)
	fact("tool", line(strings.Join(a.Tools, ", ")))
	fact("effect", effect)
	fact("run", fmt.Sprintf("%s of agent %s, call %s", a.Run, line(a.Agent), a.Call()))
	if subject != "" {
		fact("for", line(subject))
	}
	fact("asked", stamp(a.RequestedAt))
	fact("expires", stamp(a.ExpiresAt)+", then it is refused")
	fact("approvers", strings.Join(a.Approvers, ", "))
	if a.RuleNote != "" {
		fact("policy", line(a.RuleNote))
	}
	if a.Kind == approval.KindOutcome {
		fact("asks", "what became of this call: it was interrupted, and nobody knows whether it took effect")
	} else {
		fact("if denied", "the call is not carried out, and the model is told so")
	}
	for _, d := range a.Decisions {
		fact("decided", fmt.Sprintf("%s by %s at %s%s", d.Action, d.By, stamp(d.At), noteOf(d.Note)))
	}
	fmt.Fprintln(w, "  arguments")
	return writeArguments(w, "    ", a.Args)
}

func noteOf(note string) string {
	if note == "" {
		return ""
	}
	return ": " + text(note)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// ways are the commands that answer a request.
func (p *program) ways(a approval.Approval) []string {
	if a.Kind == approval.KindOutcome {
		return []string{
			p.hint("answer", a.Run, a.Call(), "--rerun") + "   carries it out again",
			p.hint("answer", a.Run, a.Call(), "--result", "JSON") + "   it took effect, with this result",
			p.hint("answer", a.Run, a.Call(), "--error", "TEXT") + "   it failed",
		}
	}
	return []string{p.hint("approve", a.ID), p.hint("deny", a.ID)}
}
