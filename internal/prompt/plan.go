package prompt

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

// Plan is a planner's answer to a request: steps, or a direct response if no tool is needed. Exactly one is set.
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

// ParsePlan reads a planner's reply: calls of plan.add_step(step, server, description), plan.respond(message) and
// plan.done(), with arguments by place or by name and with any text around them, else one JSON object of needs_tools,
// direct_response and steps. A response wins over steps. Errors wrap ErrPlan and do not quote the reply.
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

// String returns the plan as JSON that ParsePlan reads.
func (p Plan) String() string {
	form := planJSON{NeedsTools: new(p.Direct == ""), Direct: p.Direct}
	for _, s := range p.Steps {
		form.Steps = append(form.Steps, stepJSON{json.RawMessage(strconv.Itoa(s.Number)), s.Description, s.Server, s.Hints})
	}
	out, _ := jsonx.MarshalVerbatim(form) // hints are JSON: ParsePlan and the journal let nothing else through
	return string(out)
}

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

// parsePlanJSON reads the text between the first brace and the last.
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

// stepsPlan normalises steps and sorts them. If their numbers are not distinct, they are numbered again.
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
	slices.SortStableFunc(steps, func(a, b Step) int { return a.Number - b.Number })
	apart := steps[0].Number > 0
	for i := 1; i < len(steps); i++ {
		apart = apart && steps[i].Number > steps[i-1].Number
	}
	for i := 0; i < len(steps) && !apart; i++ {
		steps[i].Number = i + 1
	}
	return Plan{Steps: steps}, nil
}

// planCall is one call of a planner: its name, and its arguments by name, also those that came by place.
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

var (
	planCallStart = regexp.MustCompile(`plan\.(add_step|respond|done)[ \t]*\(\s*`)
	// planArgument is an argument with its name, if it has one, a string in either kind of quotes or a bare word, and
	// what stands behind it.
	planArgument = regexp.MustCompile(`(?s)^(?:(step|server|description|message)[ \t]*[=:]\s*)?` +
		`("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?:[^,)"'][^,)]*)?)\s*([,)])\s*`)
	planEscape = regexp.MustCompile(`(?s)\\.`)
)

// planCalls finds a text's calls, in order. Surplus arguments are ignored.
func planCalls(text string) ([]planCall, error) {
	var calls []planCall
	for {
		start := planCallStart.FindStringSubmatchIndex(text)
		if start == nil {
			return calls, nil
		}
		c := planCall{name: text[start[2]:start[3]], args: map[string]string{}}
		text = text[start[1]:]
		names := planSignatures[c.name]
		for place := 0; !strings.HasPrefix(text, ")"); place++ {
			m := planArgument.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("%w: the arguments of a call of %s do not end", ErrPlan, c.name)
			}
			name := m[1]
			if name == "" && place < len(names) {
				name = names[place]
			}
			c.args[name] = planValue(m[2])
			text = text[len(m[0]):]
			if m[3] == ")" {
				break
			}
		}
		calls = append(calls, c)
	}
}

// planValue returns the text of an argument: the text between its quotes, or the bare word.
func planValue(written string) string {
	if written == "" || written[0] != '"' && written[0] != '\'' {
		return strings.TrimSpace(written)
	}
	return planEscape.ReplaceAllStringFunc(written[1:len(written)-1], func(escape string) string {
		switch escape[1] {
		case 'n':
			return "\n"
		case 't':
			return "\t"
		case 'r':
			return "\r"
		default:
			return escape[1:]
		}
	})
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

// compound has the words that join several requests in one.
var compound = []string{"and", "then", "also", "afterwards", "finally", "after that", "as well as", "followed by",
	"for each", "for every"}

// asksForMore reports whether a request asks for several things.
func asksForMore(text string) bool {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' })
	spaced := " " + strings.Join(words, " ") + " "
	return slices.ContainsFunc(compound, func(c string) bool { return strings.Contains(spaced, " "+c+" ") })
}
