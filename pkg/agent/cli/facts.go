package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
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
	if u := a.Undoes; u != nil {
		fact("undoes", fmt.Sprintf("call %s of run %s", line(u.Call), u.Run))
	}
	if a.Root != "" {
		fact("below", fmt.Sprintf("call %s of run %s, for run %s", a.ParentCall, a.Parent, a.Root))
	}
	if subject != "" {
		fact("for", line(subject))
	}
	fact("asked", stamp(a.RequestedAt))
	fact("expires", stamp(a.ExpiresAt)+", then it is refused")
	fact("approvers", deciders(a.Approvers, a.Above))
	if a.RuleNote != "" {
		fact("policy", line(a.RuleNote))
	}
	switch {
	case a.Kind == approval.KindTools:
		return writeTools(w, a, fact)
	case a.Kind == approval.KindOutcome:
		fact("asks", "what became of this call: it was interrupted, and nobody knows whether it took effect")
	case a.Kind == approval.KindInput:
		fact("asks", "for input: its tool has done nothing yet, and "+answering[ticketOf(a).Mode])
		fact("if denied", "the call is not carried out, and the model is told so")
	case a.Scope == agent.ScopeTool:
		writeScope(a, fact)
	default:
		if a.Grants == agent.GrantsStanding {
			fact("if granted", grantedForGood(a))
		}
		fact("if denied", "the call is not carried out, and the model is told so")
	}
	writeDecisions(a, fact)
	fmt.Fprintln(w, "  arguments")
	if err := writeArguments(w, "    ", a.Args); err != nil || a.Ticket == nil {
		return err
	}
	return writeTicket(w, *a.Ticket, a.Args)
}

// deciders names who may decide: the approvers, and whom they must be among as well where agents that delegated the run have it asked.
func deciders(approvers []string, above [][]string) string {
	sets := []string{named(approvers)}
	for _, set := range above {
		if n := named(set); !slices.Contains(sets, n) {
			sets = append(sets, n)
		}
	}
	return strings.Join(sets, "; and at once ")
}

func named(set []string) string {
	if len(set) == 0 {
		return "nobody"
	}
	return strings.Join(set, ", ")
}

// answering says what an answer does.
var answering = map[agent.TicketMode]string{
	agent.TicketReplay: "runs again with the answer",
	agent.TicketResult: "does not run again: the answer is its result",
	agent.TicketPass:   "runs with the answer for its arguments, unless that is true or false",
}

func ticketOf(a approval.Approval) agent.Ticket {
	if a.Ticket == nil {
		return agent.Ticket{}
	}
	return *a.Ticket
}

// writeTicket shows what a tool asks, complete; it is the tool's own word.
func writeTicket(w io.Writer, t agent.Ticket, args json.RawMessage) error {
	fmt.Fprintf(w, "  the tool asks (not to be trusted): %s\n", text(t.Action))
	if t.Message != "" {
		fmt.Fprintf(w, "    %s\n", text(t.Message))
	}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
	}{{"with", t.Parameters}, {"the answer must fit", t.ResponseSchema}} {
		if part.raw == nil || bytes.Equal(part.raw, args) {
			continue
		}
		fmt.Fprintf(w, "  %s\n", part.name)
		if err := writeArguments(w, "    ", part.raw); err != nil {
			return err
		}
	}
	return nil
}

func writeDecisions(a approval.Approval, fact func(name, value string)) {
	if bounds := boundsOf(a); bounds != "" {
		fact("it stands", bounds)
	}
	for _, d := range a.Decisions {
		of := ""
		if len(d.Tools) > 0 {
			of = " of " + line(strings.Join(d.Tools, ", "))
		}
		fact("decided", fmt.Sprintf("%s%s by %s at %s%s", d.Action, of, d.By, stamp(d.At), noteOf(d.Note)+grantOf(d.Grant)))
	}
}

// writeScope says how far a decision on a tool goes.
func writeScope(a approval.Approval, fact func(name, value string)) {
	switch {
	case a.Grants == agent.GrantsRun:
		fact("if granted", "the tool may be called for the rest of the run, whatever it is called with")
	case a.Grants == agent.GrantsStanding && a.Scope != agent.ScopeTool:
		fact("if granted", grantedForGood(a))
	case a.Grants == agent.GrantsStanding:
		fact("if granted", "the tool may be called for the rest of the run, and in every run of "+line(a.Agent)+" for 30 days or until it is revoked, whatever it is called with")
	case a.Kind == approval.KindTools:
		fact("if granted", "the tool may be called once, whatever it is called with")
	}
	if a.Scope == agent.ScopeTool {
		fact("if denied", "the tool is not called any more in this run, and the model is told so")
		return
	}
	fact("if denied", "the model is told so; its next call asks again")
}

// grantedForGood is what an approval that stands for the very arguments does.
func grantedForGood(a approval.Approval) string {
	return "the tool may be called with these very arguments for the rest of the run, and in every run of " + line(a.Agent) +
		" for 30 days or until it is revoked"
}

// writeTools shows a request about tools: what a decision means, then each tool with the calls that asked.
func writeTools(w io.Writer, a approval.Approval, fact func(name, value string)) error {
	fact("asks", "whether these tools may be called; the calls below were blocked and are not carried out")
	writeScope(a, fact)
	writeDecisions(a, fact)
	bind := "they do not bind the model"
	if a.Grants == agent.GrantsStanding && a.Scope != agent.ScopeTool {
		bind = "a grant is of these alone"
	}
	for _, p := range a.Permissions {
		verdict := ""
		if p.Verdict != "" {
			verdict = ": " + string(p.Verdict)
		}
		fmt.Fprintf(w, "  %s (%s)%s\n", line(p.Tool), p.Effect, verdict)
		for _, c := range p.Calls {
			fmt.Fprintf(w, "    call %s, decided by %s%s, arguments (%s)\n", c.Call, deciders(c.Approvers, c.Above), ruleNote(c.RuleNote), bind)
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
	if a.Kind == approval.KindInput {
		return []string{p.hint("approve", a.ID, "--result", "JSON") + "   answers; without --result the answer is true", p.hint("deny", a.ID)}
	}
	ways := []string{p.hint("approve", a.ID), p.hint("deny", a.ID)}
	if len(a.Permissions) > 1 {
		ways = append(ways, p.hint("approve", a.ID, "--tool", line(a.Tools[0]))+"   decides about one tool")
	}
	return ways
}
