package repotest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
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

// EventRules are the rules of the template. Its references stand for the values given, otherwise for parameters'
// defaults.
func (p *Project) EventRules(values map[string]string) ([]EventRule, error) {
	value := func(name string) string {
		if v, ok := values[name]; ok {
			return v
		}
		return p.Template.Get("Parameters", name, "Default").String()
	}
	var out []EventRule
	for _, r := range p.Resources("AWS::Events::Rule") {
		pattern, err := json.Marshal(r.Properties.Get("EventPattern").plain(value))
		if err != nil {
			return nil, fmt.Errorf("read rule %s: %w", r.ID, err)
		}
		target := r.Properties.Get("Targets").Each()[0]
		rule := EventRule{ID: r.ID, Target: target.Get("Arn").Short(), Pattern: pattern}
		if t := target.Get("InputTransformer"); t != nil {
			rule.Paths, rule.Template = map[string]string{}, t.Get("InputTemplate").Short()
			for _, m := range placeholder.FindAllStringSubmatch(rule.Template, -1) {
				rule.Template = strings.ReplaceAll(rule.Template, m[0], value(m[1]))
			}
			for _, e := range t.Get("InputPathsMap").entries() {
				rule.Paths[e.Key] = e.Value.String()
			}
		}
		out = append(out, rule)
	}
	return out, nil
}

// plain is a part of the template as encoding/json takes it, with values in the place of references.
func (n *Node) plain(value func(name string) string) any {
	if name, arg := n.Call(); name == "Ref" {
		return value(arg.String())
	}
	switch {
	case n.Kind == Map:
		m := map[string]any{}
		for _, e := range n.Entries {
			m[e.Key] = e.Value.plain(value)
		}
		return m
	case n.Kind == List:
		all := []any{}
		for _, item := range n.Items {
			all = append(all, item.plain(value))
		}
		return all
	case n.Text == "true" || n.Text == "false":
		return n.Text == "true"
	}
	return n.Text
}
