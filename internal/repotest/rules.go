package repotest

import (
	"encoding/json"
	"fmt"
	"regexp"
)

var placeholder = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

// EventRule is a rule of the event bus, with values in the place of parameters.
type EventRule struct {
	ID       string
	Target   string // of its one target, in short
	Pattern  json.RawMessage
	Paths    map[string]string // of the input transformer; nil = the target gets the event as it is
	Template string            // of the input transformer
}

// EventRules are the rules of the template, with values in the place of references.
func (p *Project) EventRules(values Values) ([]EventRule, error) {
	var out []EventRule
	for _, r := range p.Resources("AWS::Events::Rule") {
		if on := r.Node.Get("Condition"); on != nil {
			switch taken, err := p.Holds(on.String(), values); {
			case err != nil:
				return nil, err
			case !taken:
				continue
			}
		}
		target := r.Properties.Get("Targets").Each()[0]
		transformer := target.Get("InputTransformer")
		resolved, err := p.Resolve(&Node{Kind: Map, Entries: []Entry{
			{"pattern", r.Properties.Get("EventPattern")}, {"template", transformer.Get("InputTemplate")},
		}}, values)
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", r.ID, err)
		}
		pattern, err := json.Marshal(resolved.(map[string]any)["pattern"])
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", r.ID, err)
		}
		rule := EventRule{ID: r.ID, Target: target.Get("Arn").Short(), Pattern: pattern}
		if transformer != nil {
			rule.Paths, rule.Template = map[string]string{}, fmt.Sprint(resolved.(map[string]any)["template"])
			for _, e := range transformer.Get("InputPathsMap").entries() {
				rule.Paths[e.Key] = e.Value.String()
			}
		}
		out = append(out, rule)
	}
	return out, nil
}
