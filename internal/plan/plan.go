// Package plan is the orchestrator: it asks a model for steps, reads them, gives each step to the loop, and joins the
// answers. It also holds the pre-filter, which narrows the tools of a request to those that fit.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// Plan is what a planner made of a request: steps, or the answer itself where no tool is needed. Exactly one of the two
// is set.
type Plan struct {
	Steps  []Step
	Direct string
}

// ErrPlan says that a text is no plan.
var ErrPlan = errors.New("the text is no plan")

// The bounds of what a plan holds, in bytes: a longer text is cut, longer hints are left out.
const (
	maxStepText  = 2000
	maxServer    = 64
	maxStepHints = 8 << 10
)

// ParsePlan reads a planner's reply: calls in the form of plan.add_step(step, server, description),
// plan.respond(message) and plan.done(), by place or by name and with any text around them, else one JSON object of
// needs_tools, direct_response and steps. A response wins over steps. An error wraps ErrPlan and quotes nothing of the
// text.
func ParsePlan(text string) (Plan, error) {
	text = agent.ValidText(text)
	if strings.HasPrefix(strings.TrimSpace(text), "{") { // what its strings say are no calls
		if p, err := parsePlanJSON(text); err == nil {
			return p, nil
		}
	}
	calls, err := planCalls(text)
	if err != nil {
		return Plan{}, err
	}
	if len(calls) > 0 {
		return planOfCalls(calls)
	}
	return parsePlanJSON(text)
}

// String is the plan as JSON that ParsePlan reads.
func (p Plan) String() string {
	form := planJSON{Direct: p.Direct}
	needs := p.Direct == ""
	form.NeedsTools = &needs
	for _, s := range p.Steps {
		form.Steps = append(form.Steps, stepJSON{json.RawMessage(strconv.Itoa(s.Number)), s.Description, s.Server, s.Hints})
	}
	out, err := jsonx.MarshalVerbatim(form)
	if err != nil { // hints are JSON: ParsePlan and the journal let nothing else through
		return ""
	}
	return string(out)
}

// planJSON is a plan as JSON models write it.
type planJSON struct {
	NeedsTools *bool      `json:"needs_tools"`
	Direct     string     `json:"direct_response,omitempty"`
	Steps      []stepJSON `json:"steps,omitempty"`
}

type stepJSON struct {
	Number      json.RawMessage `json:"step_number"`
	Description string          `json:"description"`
	Server      string          `json:"expected_server,omitempty"`
	Hints       json.RawMessage `json:"hint_params,omitempty"`
}

// parsePlanJSON reads what stands between the first brace and the last.
func parsePlanJSON(text string) (Plan, error) {
	from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
	if from < 0 || to < from {
		return Plan{}, fmt.Errorf("%w: it has neither calls nor JSON", ErrPlan)
	}
	var form planJSON
	if err := json.Unmarshal([]byte(text[from:to+1]), &form); err != nil {
		return Plan{}, fmt.Errorf("%w: it is not the JSON of one", ErrPlan)
	}
	needs := len(form.Steps) > 0
	if form.NeedsTools != nil {
		needs = *form.NeedsTools
	}
	direct := strings.TrimSpace(form.Direct)
	if !needs || len(form.Steps) == 0 {
		return directPlan(direct)
	}
	steps := make([]Step, len(form.Steps))
	for i, s := range form.Steps {
		number, _ := strconv.Atoi(strings.Trim(string(s.Number), `"`))
		steps[i] = Step{Number: number, Description: s.Description, Server: s.Server, Hints: s.Hints}
	}
	return stepsPlan(steps)
}

func directPlan(text string) (Plan, error) {
	if text == "" {
		return Plan{}, fmt.Errorf("%w: it has neither steps nor a response", ErrPlan)
	}
	return Plan{Direct: text}, nil
}

// stepsPlan puts steps into order and form. Numbers that do not tell the steps apart are given anew.
func stepsPlan(steps []Step) (Plan, error) {
	for i := range steps {
		s := &steps[i]
		s.Description = strings.TrimSpace(s.Description)
		s.Description = strings.TrimSpace(s.Description[:policy.RuneStart(s.Description, maxStepText)])
		s.Server = strings.TrimSpace(s.Server)
		s.Server = strings.TrimSpace(s.Server[:policy.RuneStart(s.Server, maxServer)])
		hints, err := jsonx.CompactJSON(s.Hints, jsonx.JSONLimits{Bytes: maxStepHints})
		if s.Hints = hints; err != nil || len(hints) < 3 || hints[0] != '{' { // no object
			s.Hints = nil
		}
		if s.Description == "" {
			return Plan{}, fmt.Errorf("%w: step %d says nothing", ErrPlan, i+1)
		}
	}
	for i := range steps { // into order; there are few
		for j := i; j > 0 && steps[j].Number < steps[j-1].Number; j-- {
			steps[j], steps[j-1] = steps[j-1], steps[j]
		}
	}
	apart := steps[0].Number > 0
	for i := 1; i < len(steps); i++ {
		apart = apart && steps[i].Number > steps[i-1].Number
	}
	for i := range steps {
		if !apart {
			steps[i].Number = i + 1
		}
	}
	return Plan{Steps: steps}, nil
}

// planCall is one call of a planner: its name, and its arguments by name; those that came by place are named by it.
type planCall struct {
	name string
	args map[string]string
}

// planSignatures are the arguments of each call, in their order.
var planSignatures = map[string][]string{
	"add_step": {"step", "server", "description"}, "respond": {"message"}, "done": nil,
}

func planOfCalls(calls []planCall) (Plan, error) {
	if i := slices.IndexFunc(calls, func(c planCall) bool { return c.name == "respond" }); i >= 0 {
		return directPlan(strings.TrimSpace(calls[i].args["message"]))
	}
	var steps []Step
	for _, c := range calls {
		if c.name != "add_step" {
			continue
		}
		number, _ := strconv.Atoi(strings.TrimSpace(c.args["step"]))
		server := c.args["server"]
		if server == "None" || server == "null" {
			server = ""
		}
		steps = append(steps, Step{Number: number, Description: c.args["description"], Server: server})
	}
	if len(steps) == 0 {
		return Plan{}, fmt.Errorf("%w: it is done before its first step", ErrPlan)
	}
	return stepsPlan(steps)
}

var planCallName = regexp.MustCompile(`^[a-z_]*`)

// planCalls finds a text's calls, in order.
func planCalls(text string) ([]planCall, error) {
	var calls []planCall
	for rest := text; ; {
		at := strings.Index(rest, "plan.")
		if at < 0 {
			break
		}
		rest = rest[at+len("plan."):]
		name := planCallName.FindString(rest)
		signature, known := planSignatures[name]
		body, open := strings.CutPrefix(strings.TrimLeft(rest[len(name):], " \t"), "(")
		if !known || !open {
			continue
		}
		r := planReader{text: body}
		args, ok := r.arguments(signature)
		if !ok {
			return nil, fmt.Errorf("%w: the arguments of a call of %s do not end", ErrPlan, name)
		}
		calls, rest = append(calls, planCall{name, args}), body[r.at:]
	}
	return calls, nil
}

// planReader reads the arguments of a call, from behind its opening bracket.
type planReader struct {
	text string
	at   int
}

// arguments reads up to the closing bracket; false where there is none. An argument too many, or of an unknown name, is
// passed over.
func (r *planReader) arguments(signature []string) (map[string]string, bool) {
	args := map[string]string{}
	for place := 0; ; place++ {
		r.space()
		if r.next(')') {
			return args, true
		}
		name := r.argumentName(signature)
		value, ok := r.value()
		if !ok {
			return nil, false
		}
		if name == "" && place < len(signature) {
			name = signature[place]
		}
		args[name] = value
		r.space()
		if !r.next(',') && (r.at >= len(r.text) || r.text[r.at] != ')') {
			return nil, false
		}
	}
}

func (r *planReader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// next passes over c where it stands next.
func (r *planReader) next(c byte) bool {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// argumentName reads name= or name: of an argument that is given by name.
func (r *planReader) argumentName(signature []string) string {
	for _, name := range signature {
		rest, ok := strings.CutPrefix(r.text[r.at:], name)
		rest = strings.TrimLeft(rest, " \t")
		if ok && rest != "" && (rest[0] == '=' || rest[0] == ':') {
			r.at = len(r.text) - len(rest) + 1
			r.space()
			return name
		}
	}
	return ""
}

// value reads a string in either kind of quotes, with escapes, or a bare word.
func (r *planReader) value() (string, bool) {
	if r.at >= len(r.text) {
		return "", false
	}
	quote := r.text[r.at]
	if quote != '"' && quote != '\'' {
		end := strings.IndexAny(r.text[r.at:], ",)")
		if end < 0 {
			return "", false
		}
		word := strings.TrimSpace(r.text[r.at : r.at+end])
		r.at += end
		return word, true
	}
	r.at++
	var b strings.Builder
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch {
		case c == quote:
			return b.String(), true
		case c == '\\' && r.at < len(r.text):
			b.WriteByte(planEscape(r.text[r.at]))
			r.at++
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// planEscape is what a backslash and c stand for.
func planEscape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	default:
		return c
	}
}

// mentioned lists the numbers of the steps that a text names, as in "the file of step 2".
func mentioned(text string) []int {
	var numbers []int
	for _, m := range stepNumber.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

var stepNumber = regexp.MustCompile(`(?i)(?:^|[^\w])step(?:[ \t]+#?|#)([0-9]+)`)

// compound are the words by which one request asks for several things.
var compound = []string{"and", "then", "also", "afterwards", "finally", "after that", "as well as", "followed by",
	"for each", "for every"}

// asksForMore reports whether a text asks for several things.
func asksForMore(text string) bool {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' })
	spaced := " " + strings.Join(words, " ") + " "
	return slices.ContainsFunc(compound, func(c string) bool { return strings.Contains(spaced, " "+c+" ") })
}
