package policy

import (
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// DigestInput is what an approval binds (A6): if any of it changes, the approval no longer applies. All fields are
// strings, because RFC 8785 rounds numbers to doubles, and two amounts could share a digest.
type DigestInput struct {
	Tenant, Run, Call string
	Agent, Version    string
	Tool              string // the original name
	ToolHash          string // by agent.ToolHash
	ArgsHash          string // hex SHA-256 of the stored argument bytes, exactly as they are
	PolicyVersion     string // by VersionOfPolicy
	ApproverPolicy    string // by Decision.ApproverPolicy
	Checked           string // by preconditionDigest, of the result that people are shown; "" = no precondition
}

// ActionDigest returns the hex SHA-256 of the RFC 8785 form of an object of d's strings. The keys are part of every
// stored approval and never change.
func (d DigestInput) ActionDigest() string {
	of := map[string]any{
		"tenant": d.Tenant, "run": d.Run, "call": d.Call,
		"agent": d.Agent, "version": d.Version,
		"tool": d.Tool, "toolHash": d.ToolHash, "argsHash": d.ArgsHash,
		"policyVersion": d.PolicyVersion, "approverPolicy": d.ApproverPolicy,
	}
	if d.Checked != "" { // a call without a precondition keeps its digest
		of["checked"] = d.Checked
	}
	return agent.HashCanonical(of)
}

// PolicyVersion returns the hex SHA-256 of a permission's canonical form. It changes whenever anything in the policy
// does.
func PolicyVersion(p agent.Permission) string {
	policy := map[string]any{
		"mode": string(p.Mode), "default": string(p.Default), "approvers": stringList(p.Approvers),
		"expires": p.Expires.String(), "rules": run.Map(p.Rules, canonicalRule),
	}
	for key, value := range map[string]string{"scope": string(p.Scope), "grants": string(p.Grants),
		"approvalTool": p.ApprovalTool, "backend": p.Backend, "policy": p.Policy} {
		if value != "" { // a policy without these keys has the version that it had before they existed
			policy[key] = value
		}
	}
	if b := p.Bounds; !b.Zero() {
		policy["standing"] = map[string]any{"pattern": b.Pattern, "when": stringList(agent.CanonicalWhen(b.When)),
			"uses": strconv.Itoa(b.Uses), "expires": b.Expires.String()}
	}
	return agent.HashCanonical(policy)
}

// ApproverPolicy returns the hex SHA-256 of who may approve and how many must: approvers, the sets above, four eyes,
// channels and those who may decide later. Order and repetition within a set do not count. Keys that a decision does
// not use are left out of the hash.
func (d Decision) ApproverPolicy() string {
	policy := map[string]any{"approvers": approverSet(d.Approvers), "quorum": strconv.Itoa(d.People())}
	sets := func(of [][]string) []any {
		return run.Map(of, func(set []string) any { return approverSet(set) })
	}
	if len(d.Above) > 0 {
		policy["above"] = sets(d.Above)
	}
	if d.FourEyes {
		policy["fourEyes"] = true
	}
	if d.Escalate != nil {
		policy["escalate"], policy["aboveTo"] = canonicalEscalation(*d.Escalate), sets(d.AboveTo)
	}
	addChannels(policy, d.Channels)
	return agent.HashCanonical(policy)
}

func canonicalEscalation(e agent.Escalation) map[string]any {
	return map[string]any{"after": e.After.String(), "to": approverSet(e.To)}
}

func approverSet[S ~string](approvers []S) []any {
	return stringList(slices.Compact(slices.Sorted(slices.Values(approvers))))
}

// addChannels adds the restrictions of channels, if there are any.
func addChannels(of map[string]any, c agent.Channels) {
	if c.Via != nil {
		of["via"] = approverSet(c.Via)
	}
	if c.Confirm != "" {
		of["confirm"] = string(c.Confirm)
	}
}

func canonicalRule(r agent.Rule) any {
	when := run.Map(r.When, func(c run.Condition) any { return agent.CanonicalCondition(c) })
	rule := map[string]any{
		"tool": r.Tool, "when": when, "verdict": string(r.Verdict), "approvers": stringList(r.Approvers),
		"expires": r.Expires.String(), "note": r.Note,
	}
	// A rule without these keys has the hash that it had before they existed.
	if r.Quorum > 1 {
		rule["quorum"] = strconv.Itoa(r.Quorum)
	}
	if r.FourEyes {
		rule["fourEyes"] = true
	}
	if r.Remind != 0 {
		rule["remind"] = r.Remind.String()
	}
	if r.Escalate != nil {
		rule["escalate"] = canonicalEscalation(*r.Escalate)
	}
	addChannels(rule, r.Channels())
	return rule
}

func stringList[S ~string](ss []S) []any {
	return run.Map(ss, func(s S) any { return string(s) })
}
