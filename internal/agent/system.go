package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
	"time"
)

// SystemData is what a system text may show of its run, besides the definition.
type SystemData struct {
	Date         string          // the run's first day in UTC, 2006-01-02
	Now          string          // the moment of this inference, RFC 3339 in UTC; "" = the text is built once, and .Now is an error
	Run          string          // the run's id
	Caller       string          // the agent that delegated the run; "" = nobody did
	Input        json.RawMessage // checked JSON; nil = the run started from a message, and .Input is an error
	Interactions Interactions
	Exhausted    bool
}

// RenderSystem builds the system text of a run: a Template over .Date, .Run, .Agent, .Caller (the agent that
// delegated the run; empty where nobody did), .Input (numbers keep their digits), .Tools (Name as the model knows it, Description), .Interactions (Current, Max, Exhausted) and, where the text is built for every
// inference, .Now. A missing key is an error.
func RenderSystem(d Definition, data SystemData) (string, error) {
	t, err := parseTemplate(systemName, d.System)
	if err != nil {
		return "", fmt.Errorf("parse system text of %s: %w", d.Name, err)
	}
	dot, err := systemDot(d, data)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: input: %w", d.Name, err)
	}
	text, err := executeTemplate(t, dot)
	if err != nil {
		return "", fmt.Errorf("render system text of %s: %w", d.Name, err)
	}
	return text, nil
}

// SystemDigest is a system text's digest: the SHA-256 of its bytes in hex, as blobs have it.
func SystemDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// SystemFor is what a system text shows of s for action a. One that is built once shows the quota as it is at the start; one that is built
// for every inference, how things stand now.
func SystemFor(d *Definition, s *AgentState, a Action, now time.Time) SystemData {
	data := SystemData{Date: s.StartedAt.UTC().Format(time.DateOnly), Run: s.Run, Caller: s.Caller(), Input: s.Input, Interactions: Interactions{Max: s.Interactions.Max}}
	if d.SystemPrompt == SystemEveryInference {
		data.Now, data.Interactions, data.Exhausted = now.UTC().Format(time.RFC3339), s.Interactions, a.Exhausted
	}
	return data
}

// KeptSystem is the system text of a run whose text is built once, as its first inference had it. inBlob says that it is the blob of
// s.System; ok is false where it is to be built: before the first inference, and in runs of before it was kept.
func KeptSystem(d *Definition, s *AgentState) (text string, inBlob, ok bool) {
	switch {
	case d.SystemPrompt == SystemEveryInference || s.System == "":
		return "", false, false
	case s.SystemBlob:
		return "", true, true
	case s.SystemText != "":
		return s.SystemText, false, true
	default: // its digest says whether it is the definition's own words, which are pinned
		return d.System, false, SystemDigest(d.System) == s.System
	}
}

// maxSystemText is how long a system text may be to stand in the journal, in bytes; a longer one is a blob.
const maxSystemText = 16 << 10

// KeepSystem keeps a text that is built once in the fact of the first inference that had it, unless the definition's own words give it. A
// text that is too long for the journal must be in the blob of its digest before the fact is committed; SystemBlob says so.
func KeepSystem(d *Definition, e Replied, text string) Replied {
	e.SystemText, e.SystemBlob = storedSystem(d, e.System, text)
	return e
}

// KeepPlanSystem is KeepSystem for the first request of a run's plan, under a text that was built for it; digest is "" where none was.
func KeepPlanSystem(d *Definition, e Planned, text, digest string) Planned {
	e.System = digest
	e.SystemText, e.SystemBlob = storedSystem(d, digest, text)
	return e
}

func storedSystem(d *Definition, digest, text string) (kept string, inBlob bool) {
	switch {
	case digest == "" || d.SystemPrompt == SystemEveryInference || text == d.System:
		return "", false
	case len(text) <= maxSystemText:
		return text, false
	default:
		return "", true
	}
}

// systemName is what errors call the text.
const systemName = "system"

func systemDot(d Definition, data SystemData) (map[string]any, error) {
	left := data.Interactions
	dot := map[string]any{
		"Date": data.Date, "Run": data.Run, "Agent": d.Name, "Caller": data.Caller, "Tools": toolDots(d.Tools),
		"Interactions": map[string]any{"Current": left.Current, "Max": left.Max, "Exhausted": data.Exhausted},
	}
	if data.Now != "" {
		dot["Now"] = data.Now
	}
	if data.Input == nil {
		return dot, nil
	}
	input, err := decodeNumbers(data.Input)
	dot["Input"] = input
	return dot, err
}

// toolDots are tools as templates see them.
func toolDots(tools []ToolSpec) []any {
	dots := make([]any, len(tools))
	for i, t := range tools {
		dots[i] = map[string]any{"Name": t.ModelName(), "Description": t.Description}
	}
	return dots
}

// checkedSystem is data for a text that is tried before there is a run.
func checkedSystem(built SystemPrompt) SystemData {
	data := SystemData{Date: "2026-01-01", Run: "r", Interactions: Interactions{Max: 1}}
	if built == SystemEveryInference {
		data.Now = "2026-01-01T00:00:00Z"
	}
	return data
}

// CheckSystem finds what can be known to be wrong with a system text before there is a run: syntax, names that don't exist,
// and, where the text does not depend on .Input, everything else. {{define}}d templates are checked only if it doesn't. What exists
// depends on when the text is built.
func CheckSystem(text string, built SystemPrompt) error {
	t, err := parseTemplate(systemName, text)
	if err != nil {
		return fmt.Errorf("check system text: %w", err)
	}
	v := rootFields{known: systemFields(built)}
	v.visit(t.Tree.Root, true)
	if v.unknown != "" {
		return fmt.Errorf("check system text: .%s does not exist; want one of %s", v.unknown, strings.Join(v.known, ", "))
	}
	if v.input || len(t.Templates()) > 1 {
		return nil
	}
	_, err = RenderSystem(Definition{Name: "check", System: text, Tools: []ToolSpec{{Name: "tool"}}}, checkedSystem(built))
	return err
}

// systemFields are the names that a system text may show.
func systemFields(built SystemPrompt) []string {
	if built == SystemEveryInference {
		return systemNamesNow
	}
	return systemNames
}

var (
	systemNames    = []string{".Agent", ".Caller", ".Date", ".Input", ".Interactions", ".Run", ".Tools"}
	systemNamesNow = []string{".Agent", ".Caller", ".Date", ".Input", ".Interactions", ".Now", ".Run", ".Tools"}
)

// rootFields collects what a template reads from its top-level dot, and which templates it uses.
type rootFields struct {
	known     []string // names that exist
	unknown   string   // the first name that does not
	input     bool     // .Input is read, or dot as a whole
	templates []string
}

// visit walks n; atRoot says whether dot still is the top-level one there.
func (v *rootFields) visit(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			visitAll(v, n.Nodes, atRoot)
		}
	case *parse.ActionNode:
		v.visit(n.Pipe, atRoot)
	case *parse.TemplateNode:
		v.templates = append(v.templates, n.Name)
		v.visit(n.Pipe, atRoot)
	case *parse.IfNode:
		v.branch(&n.BranchNode, atRoot, atRoot)
	case *parse.RangeNode:
		v.branch(&n.BranchNode, atRoot, false)
	case *parse.WithNode:
		v.branch(&n.BranchNode, atRoot, false)
	default:
		v.expression(n, atRoot)
	}
}

func (v *rootFields) branch(n *parse.BranchNode, atRoot, bodyAtRoot bool) {
	v.visit(n.Pipe, atRoot)
	v.visit(n.List, bodyAtRoot)
	v.visit(n.ElseList, atRoot)
}

func (v *rootFields) expression(n parse.Node, atRoot bool) {
	switch n := n.(type) {
	case *parse.PipeNode:
		if n != nil {
			visitAll(v, n.Cmds, atRoot)
		}
	case *parse.CommandNode:
		visitAll(v, n.Args, atRoot)
	case *parse.ChainNode:
		v.visit(n.Node, atRoot)
	case *parse.DotNode:
		v.input = v.input || atRoot
	case *parse.FieldNode:
		if atRoot {
			v.name(n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			v.name(n.Ident[1])
		}
	}
}

func visitAll[N parse.Node](v *rootFields, nodes []N, atRoot bool) {
	for _, n := range nodes {
		v.visit(n, atRoot)
	}
}

func (v *rootFields) name(name string) {
	v.input = v.input || name == "Input"
	if v.unknown == "" && !slices.Contains(v.known, "."+name) {
		v.unknown = name
	}
}
