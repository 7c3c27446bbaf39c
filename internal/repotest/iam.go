package repotest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Line is one action on one resource that a role of the template allows, or denies.
type Line struct {
	Text string // as the template has it: "action on resource if condition"

	deny             bool
	action, resource string // patterns
	conditions       []condition
}

// condition is one key of a statement's conditions. A request must have one of the values; with ForAllValues, nothing
// but such values.
type condition struct {
	forAll bool
	like   bool // the values are patterns
	key    string
	values []string
}

// Request is a request as IAM sees it.
type Request struct {
	Action, Resource string
	Context          map[string][]string // by condition key
}

// Lines are what a role's policies say, its own and those that are attached to it, with values in the place of
// references, in the template's order. What this does not know of policies is an error, so that nothing is evaluated
// otherwise than by AWS.
func (p *Project) Lines(role string, values Values) ([]Line, error) {
	var out []Line
	policies := p.Template.Get("Resources", role, "Properties", "Policies").Each()
	for _, r := range p.Resources("AWS::IAM::Policy") {
		there, err := p.Holds(r.Node.Get("Condition").String(), values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.ID, err)
		}
		if there && r.Properties.Get("Roles").Short() == "["+role+"]" {
			policies = append(slices.Clone(policies), r.Properties)
		}
	}
	for _, policy := range policies {
		for _, s := range policy.Get("PolicyDocument", "Statement").Each() {
			r := resolver{p: p, values: values}
			if s = r.chosen(s); r.err != nil {
				return nil, r.err
			}
			if name, _ := s.Call(); name == "Ref" { // AWS::NoValue
				continue
			}
			lines, err := p.statement(s, values)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", role, err)
			}
			out = append(out, lines...)
		}
	}
	return out, nil
}

func (p *Project) statement(s *Node, values Values) ([]Line, error) {
	for _, e := range s.entries() {
		if !slices.Contains([]string{"Sid", "Effect", "Action", "Resource", "Condition"}, e.Key) {
			return nil, fmt.Errorf("statement: %s: it is not evaluated here", e.Key)
		}
	}
	conditions, err := p.conditions(s.Get("Condition"), values)
	if err != nil {
		return nil, err
	}
	text := ""
	if c := s.Get("Condition"); c != nil {
		text = " if " + c.Short()
	}
	var out []Line
	for _, a := range s.Get("Action").Each() {
		for _, r := range s.Get("Resource").Each() {
			resource, err := p.Resolve(r, values)
			if err != nil {
				return nil, err
			}
			if resource == nil { // AWS::NoValue
				continue
			}
			out = append(out, Line{
				Text: a.String() + " on " + r.Short() + text, deny: s.Get("Effect").String() != "Allow",
				action: a.String(), resource: fmt.Sprint(resource), conditions: conditions,
			})
		}
	}
	return out, nil
}

func (p *Project) conditions(n *Node, values Values) ([]condition, error) {
	resolved, err := p.Resolve(n, values)
	if err != nil {
		return nil, err
	}
	operators, _ := resolved.(map[string]any)
	var out []condition
	for name, keys := range operators {
		base, forAll := strings.CutPrefix(name, "ForAllValues:")
		like := base == "StringLike" || base == "ArnLike"
		if !like && base != "StringEquals" && base != "ArnEquals" && base != "Bool" {
			return nil, fmt.Errorf("condition %s: it is not evaluated here", name)
		}
		for key, value := range keys.(map[string]any) {
			c := condition{forAll: forAll, like: like, key: key}
			list, isList := value.([]any)
			if !isList {
				list = []any{value}
			}
			for _, v := range list {
				c.values = append(c.values, fmt.Sprint(v))
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// Permit is the line by which a request is permitted. As with IAM, a line that denies wins.
func Permit(lines []Line, q Request) (Line, bool) {
	var by Line
	permitted := false
	for _, l := range lines {
		switch {
		case !likeARN(l.action, q.Action) || !likeARN(l.resource, q.Resource) || !l.holds(q):
		case l.deny:
			return l, false
		case !permitted:
			by, permitted = l, true
		}
	}
	return by, permitted
}

func (l Line) holds(q Request) bool {
	for _, c := range l.conditions {
		matches := func(got string) bool {
			return slices.ContainsFunc(c.values, func(want string) bool {
				return got == want || c.like && likeARN(want, got)
			})
		}
		got := q.Context[c.key]
		// A request without the key has nothing but such values, says IAM. No action that is granted here is without.
		if c.forAll && (len(got) == 0 || slices.ContainsFunc(got, func(v string) bool { return !matches(v) })) ||
			!c.forAll && !slices.ContainsFunc(got, matches) {
			return false
		}
	}
	return true
}

// likeARN matches a pattern of IAM: * stands for any text, ? for one character.
func likeARN(pattern, text string) bool {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile("(?s)^" + expression + "$").MatchString(text)
}
