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
	switch {
	case a.Kind == approval.KindTools:
		return writeTools(w, a, fact)
	case a.Kind == approval.KindOutcome:
		fact("asks", "what became of this call: it was interrupted, and nobody knows whether it took effect")
	case a.Scope == agent.ScopeTool:
		writeScope(a, fact)
	default:
		fact("if denied", "the call is not carried out, and the model is told so")
	}
	writeDecisions(a, fact)
	fmt.Fprintln(w, "  arguments")
	return writeArguments(w, "    ", a.Args)
}

func writeDecisions(a approval.Approval, fact func(name, value string)) {
	for _, d := range a.Decisions {
		of := ""
		if len(d.Tools) > 0 {
			of = " of " + line(strings.Join(d.Tools, ", "))
		}
		fact("decided", fmt.Sprintf("%s%s by %s at %s%s", d.Action, of, d.By, stamp(d.At), noteOf(d.Note)))
	}
}

// writeScope says how far a decision on a tool goes.
func writeScope(a approval.Approval, fact func(name, value string)) {
	switch {
	case a.Grants == agent.GrantsRun:
		fact("if granted", "the tool may be called for the rest of the run, whatever it is called with")
	case a.Kind == approval.KindTools:
		fact("if granted", "the tool may be called once, whatever it is called with")
	}
	if a.Scope == agent.ScopeTool {
		fact("if denied", "the tool is not called any more in this run, and the model is told so")
		return
	}
	fact("if denied", "the model is told so; its next call asks again")
}

// writeTools shows a request about tools: what a decision means, then each tool with the calls that asked.
func writeTools(w io.Writer, a approval.Approval, fact func(name, value string)) error {
	fact("asks", "whether these tools may be called; the calls below were blocked and are not carried out")
	writeScope(a, fact)
	writeDecisions(a, fact)
	for _, p := range a.Permissions {
		verdict := ""
		if p.Verdict != "" {
			verdict = ": " + string(p.Verdict)
		}
		fmt.Fprintf(w, "  %s (%s)%s\n", line(p.Tool), p.Effect, verdict)
		for _, c := range p.Calls {
			fmt.Fprintf(w, "    call %s, decided by %s%s, arguments (they do not bind the model)\n", c.Call, strings.Join(c.Approvers, ", "), ruleNote(c.RuleNote))
			if err := writeArguments(w, "      ", c.Args); err != nil {
				return err
			}
		}
	}
	return nil
}

func ruleNote(note string) string {
	if note == "" {
		return ""
	}
	return ", policy " + text(note)
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
	ways := []string{p.hint("approve", a.ID), p.hint("deny", a.ID)}
	if len(a.Permissions) > 1 {
		ways = append(ways, p.hint("approve", a.ID, "--tool", line(a.Tools[0]))+"   decides about one tool")
	}
	return ways
}
