package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// DigestInput is what an approval binds (A6): change any of it and the approval no longer fits. All are strings, since
// RFC 8785 rounds numbers to doubles and two amounts could share a digest.
type DigestInput struct {
	Tenant, Run, Call string
	Agent, Version    string
	Tool              string // the original name
	ToolHash          string // of ToolHash
	ArgsHash          string // of ArgsHash, over the stored bytes
	PolicyVersion     string // of PolicyVersion
	ApproverPolicy    string // of ApproverPolicy
	Checked           string // of what the call's precondition gave, as it was shown; "" = it has none
}

// ActionDigest is the hex SHA-256 of the RFC 8785 form of an object of d's strings. The keys are part of every stored
// approval: they never change.
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
	return hashCanonical(of)
}

// ToolHash is the hex SHA-256 of a tool's definition. White space, key order and string escapes of the schema don't count,
// so storing and loading a definition leaves it as it is.
func ToolHash(t ToolSpec) string {
	spec := map[string]any{
		"name": t.Name, "kind": string(t.Kind), "description": t.Description, "schema": canonicalText(t.Schema),
		"effect": string(t.Effect), "priority": strconv.Itoa(t.Priority), "timeout": t.Timeout.String(), "root": t.Root,
	}
	for key, value := range map[string]string{"event": t.Event, "domain": t.Domain} {
		if value != "" { // a tool of before there were such keys keeps its hash
			spec[key] = value
		}
	}
	if where := canonicalRemote(t); where != "{}" {
		spec["remote"] = where
	}
	return hashCanonical(spec)
}

// canonicalRemote is the rest of a tool's definition: where its calls go and how they are made. Loading what it was stored as leaves it as
// it is: struct fields have one order, JSON's maps are sorted, and the marshaller writes raw values in one form.
func canonicalRemote(t ToolSpec) string {
	text, err := json.Marshal(struct {
		MCP         *MCPTool    `json:"mcp,omitempty"`
		Lambda      *LambdaTool `json:"lambda,omitempty"`
		HTTP        *HTTPTool   `json:"http,omitempty"`
		Agent       *Delegate   `json:"agent,omitempty"`
		Retry       ToolRetry   `json:"retry,omitzero"`
		Concurrency int         `json:"concurrency,omitempty"`
		MaxResult   int64       `json:"maxResult,omitempty"`
		Undo        *Undo       `json:"undo,omitempty"`

		Precondition *Precondition `json:"precondition,omitempty"`
	}{t.MCP, t.Lambda, t.HTTP, t.Agent, t.Retry, t.Concurrency, t.MaxResult, t.Undo, t.Precondition})
	if err != nil { // raw JSON that is none, which Check refuses: no two of them are the same
		return "unreadable: " + err.Error()
	}
	return string(text)
}

// ArgsHash is the hex SHA-256 of a call's stored argument bytes, exactly as they are.
func ArgsHash(args json.RawMessage) string { return hashHex(args) }

// DefinitionDigest is the hex SHA-256 of a stored definition's bytes: its blob's name.
func DefinitionDigest(stored []byte) string { return hashHex(stored) }

// PolicyVersion is the hex SHA-256 of a permission's canonical form. It changes whenever anything in the policy does.
func PolicyVersion(p Permission) string {
	rules := make([]any, len(p.Rules))
	for i, r := range p.Rules {
		rules[i] = canonicalRule(r)
	}
	policy := map[string]any{
		"mode": string(p.Mode), "default": string(p.Default), "approvers": stringList(p.Approvers),
		"expires": p.Expires.String(), "rules": rules,
	}
	for key, value := range map[string]string{"scope": string(p.Scope), "grants": string(p.Grants), "approvalTool": p.ApprovalTool, "backend": p.Backend, "policy": p.Policy} {
		if value != "" { // a policy of before there were such keys keeps its version
			policy[key] = value
		}
	}
	if b := p.Bounds; !b.zero() {
		policy["standing"] = map[string]any{"pattern": b.Pattern, "when": stringList(canonicalWhen(b.When)), "uses": strconv.Itoa(b.Uses), "expires": b.Expires.String()}
	}
	return hashCanonical(policy)
}

// ApproverPolicy is the hex SHA-256 of who may approve and how many of them it takes: approvers, and those of each set above whom they must
// be among as well. Order and repetition within a set don't count.
func ApproverPolicy(approvers []string, quorum int, above ...[]string) string {
	return Decision{Approvers: approvers, Quorum: quorum, Above: above}.ApproverPolicy()
}

// ApproverPolicy is the ApproverPolicy of what a decision asks, with four eyes and with those who may decide later. What asks for none of
// them has the hash it had before there were any.
func (d Decision) ApproverPolicy() string {
	policy := map[string]any{"approvers": approverSet(d.Approvers), "quorum": strconv.Itoa(d.People())}
	if len(d.Above) > 0 {
		policy["above"] = approverSets(d.Above)
	}
	if d.FourEyes {
		policy["fourEyes"] = true
	}
	if d.Escalate != nil {
		policy["escalate"] = canonicalEscalation(*d.Escalate)
		policy["aboveTo"] = approverSets(d.AboveTo)
	}
	return hashCanonical(policy)
}

func approverSets(of [][]string) []any {
	sets := make([]any, len(of))
	for i, set := range of {
		sets[i] = approverSet(set)
	}
	return sets
}

func canonicalEscalation(e Escalation) map[string]any {
	return map[string]any{"after": e.After.String(), "to": approverSet(e.To)}
}

func approverSet(approvers []string) []any {
	return stringList(slices.Compact(slices.Sorted(slices.Values(approvers))))
}

func canonicalRule(r Rule) map[string]any {
	when := make([]any, len(r.When))
	for i, c := range r.When {
		when[i] = canonicalCondition(c)
	}
	rule := map[string]any{
		"tool": r.Tool, "when": when, "verdict": string(r.Verdict), "approvers": stringList(r.Approvers),
		"expires": r.Expires.String(), "note": r.Note,
	}
	// A rule of before there were such keys keeps its hash.
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
	return rule
}

func canonicalCondition(c Condition) map[string]any {
	in := make([]any, len(c.In))
	for i, v := range c.In {
		in[i] = canonicalText(v)
	}
	return map[string]any{
		"path": c.Path, "matches": c.Matches, "in": in,
		"eq": canonicalText(c.Eq), "ne": canonicalText(c.Ne),
		"gt": canonicalText(c.Gt), "gte": canonicalText(c.Gte), "lt": canonicalText(c.Lt), "lte": canonicalText(c.Lte),
	}
}

// canonicalText is the RFC 8785 form of raw, but with its numbers' digits kept. Text that is not JSON stands for itself: it
// equals no canonical form.
func canonicalText(raw json.RawMessage) string {
	v, err := decodeNumbers(raw)
	if err != nil {
		return string(raw)
	}
	return string(appendCanonical(nil, v))
}

// CanonicalJSON is the RFC 8785 form of a JSON value, but with its numbers' digits kept.
func CanonicalJSON(raw json.RawMessage) (string, error) {
	v, err := decodeNumbers(raw)
	if err != nil {
		return "", err
	}
	return string(appendCanonical(nil, v)), nil
}

func hashCanonical(v map[string]any) string { return hashHex(appendCanonical(nil, v)) }

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func stringList(ss []string) []any {
	vs := make([]any, len(ss))
	for i, s := range ss {
		vs[i] = s
	}
	return vs
}

// appendCanonical writes what decodeNumbers returns as RFC 8785 wants it, but json.Number as it is spelled.
func appendCanonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return appendCanonicalString(b, v)
	case []any:
		return appendCanonicalList(b, v)
	case map[string]any:
		return appendCanonicalObject(b, v)
	}
	panic(fmt.Sprintf("canonical json: %T", v)) // a programming error: nothing from outside gets here with another type
}

func appendCanonicalList(b []byte, vs []any) []byte {
	b = append(b, '[')
	for i, v := range vs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCanonical(b, v)
	}
	return append(b, ']')
}

func appendCanonicalObject(b []byte, m map[string]any) []byte {
	b = append(b, '{')
	for i, k := range slices.SortedFunc(maps.Keys(m), compareUTF16) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCanonicalString(b, k)
		b = append(b, ':')
		b = appendCanonical(b, m[k])
	}
	return append(b, '}')
}

// compareUTF16 orders keys by UTF-16 code units (RFC 8785, 3.2.3), which is not the order of their bytes: U+1F600 comes
// before U+FB33. Keys that differ in invalid bytes alone still have one order.
func compareUTF16(a, b string) int {
	return cmp.Or(slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))), strings.Compare(a, b))
}

// appendCanonicalString escapes what RFC 8785, 3.2.2.2 says and nothing else. Bytes that are not UTF-8 are copied, so that
// different strings never look alike.
func appendCanonicalString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b', '\t', '\n', '\f', '\r':
			b = append(b, '\\', "btn_fr"[c-'\b'])
		default:
			if c < ' ' {
				b = fmt.Appendf(b, `\u%04x`, c)
			} else {
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
