package repotest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Values says what references of the template stand for: parameters and resources by their names, attributes as
// Resource.Attribute, pseudo parameters as AWS::Region. Parameters that are not in it have their defaults.
type Values map[string]string

// SAM is what SAM CLI puts in place of references for `sam local invoke` with those parameters: resources stand for
// their own names, Arn for a function's, and any other attribute for a text that is of no use.
func (p *Project) SAM(parameters Values) Values {
	return p.fill("us-east-1", "local", parameters, func(v Values, r Resource, attribute string) string {
		switch attribute {
		case "":
			return r.ID
		case "Arn":
			return v.ARN("lambda", "function:"+r.ID)
		}
		return "$" + r.ID + "." + attribute
	})
}

// Deployed is what CloudFormation puts in place of references, with those parameters, pseudo parameters and names of
// resources: a stack countersign-dev in eu-central-1, where they say nothing else.
func (p *Project) Deployed(given Values) Values {
	return p.fill("eu-central-1", "countersign-dev", given, func(v Values, r Resource, attribute string) string {
		name := cmp.Or(v[r.ID], r.ID)
		switch {
		case r.Type == "AWS::SecretsManager::Secret":
			return v.ARN("secretsmanager", "secret:"+r.ID+"-1a2b3c")
		case r.Type == "AWS::Serverless::StateMachine":
			return v.ARN("states", "stateMachine:"+v["AWS::StackName"]+"-agent")
		case attribute == "":
			return name
		case attribute != "Arn":
			return r.ID + "." + attribute
		case r.Type == "AWS::DynamoDB::Table":
			return v.ARN("dynamodb", "table/"+name)
		case r.Type == "AWS::S3::Bucket":
			return "arn:" + v["AWS::Partition"] + ":s3:::" + name
		case r.Type == "AWS::Serverless::Function":
			return v.ARN("lambda", "function:"+r.ID)
		}
		return v.ARN(strings.ToLower(strings.Split(r.Type, "::")[1]), r.ID)
	})
}

// ARN is the ARN of something in the account and region.
func (v Values) ARN(service, name string) string {
	return strings.Join([]string{"arn", v["AWS::Partition"], service, v["AWS::Region"], v["AWS::AccountId"], name}, ":")
}

// fill are the pseudo parameters, what is given, and what resources and their attributes stand for.
func (p *Project) fill(
	region, stack string, given Values, stands func(v Values, r Resource, attribute string) string,
) Values {
	v := Values{
		"AWS::AccountId": "123456789012", "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com",
		"AWS::Region": region, "AWS::StackName": stack,
	}
	maps.Copy(v, given)
	resources := map[string]Resource{}
	for _, r := range p.Resources() {
		resources[r.ID] = r
	}
	for _, target := range p.Template.targets() {
		id, attribute, _ := strings.Cut(target, ".")
		if r, ok := resources[id]; ok && v[target] == "" {
			v[target] = stands(v, r, attribute)
		}
	}
	return v
}

// Resolve evaluates a part of the template: texts, bools, lists and maps, and nil for AWS::NoValue, which is left out
// of lists and maps. A reference that stands for nothing, and a function that this does not know, is an error.
func (p *Project) Resolve(n *Node, values Values) (any, error) {
	r := resolver{p: p, values: values}
	out := r.value(n)
	return out, r.err
}

// Holds evaluates a condition of the template by its name.
func (p *Project) Holds(condition string, values Values) (bool, error) {
	r := resolver{p: p, values: values}
	ok := r.holds(&Node{Kind: Map, Entries: []Entry{{"Condition", &Node{Text: condition}}}})
	return ok, r.err
}

// Environment is a function's environment with values in the place of references. A variable without a value is left
// out.
func (p *Project) Environment(function string, values Values) (map[string]string, error) {
	out := map[string]string{}
	for _, n := range []*Node{
		p.Template.Get("Globals", "Function", "Environment", "Variables"),
		p.Template.Get("Resources", function, "Properties", "Environment", "Variables"),
	} {
		all, err := p.Resolve(n, values)
		if err != nil {
			return nil, fmt.Errorf("environment of %s: %w", function, err)
		}
		variables, _ := all.(map[string]any)
		for name, value := range variables {
			out[name] = fmt.Sprint(value)
		}
	}
	return out, nil
}

// resolver keeps the first error.
type resolver struct {
	p      *Project
	values Values
	err    error
}

func (r *resolver) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *resolver) value(n *Node) any {
	if n = r.chosen(n); n == nil {
		return nil
	}
	if name, arg := n.Call(); name != "" {
		return r.call(name, arg)
	}
	switch n.Kind {
	case Map:
		m := map[string]any{}
		for _, e := range n.Entries {
			if v := r.value(e.Value); v != nil {
				m[e.Key] = v
			}
		}
		return m
	case List:
		all := []any{}
		for _, item := range n.Items {
			if v := r.value(item); v != nil {
				all = append(all, v)
			}
		}
		return all
	}
	if n.Bool {
		return n.Text == "true"
	}
	return n.Text
}

// chosen is what an Fn::If says, and any other node itself.
func (r *resolver) chosen(n *Node) *Node {
	name, arg := n.Call()
	switch {
	case name != "Fn::If" || len(arg.Each()) != 3:
		return n
	case r.holds(r.p.Template.Get("Conditions", arg.Items[0].String())):
		return r.chosen(arg.Items[1])
	}
	return r.chosen(arg.Items[2])
}

var placeholder = regexp.MustCompile(`\$\{([^!}][^}]*)\}`)

func (r *resolver) call(name string, arg *Node) any {
	switch {
	case name == "Ref":
		return r.reference(arg.String())
	case name == "Fn::GetAtt":
		return r.reference(join(arg.Items, "."))
	case name == "Fn::Sub" && arg.Kind == Scalar:
		return placeholder.ReplaceAllStringFunc(arg.String(), func(m string) string {
			return fmt.Sprint(r.reference(m[2 : len(m)-1]))
		})
	case name == "Fn::Join" && len(arg.Each()) == 2:
		parts, _ := r.value(arg.Items[1]).([]any)
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i] = fmt.Sprint(part)
		}
		return strings.Join(texts, arg.Items[0].String())
	case name == "Fn::Split" && len(arg.Each()) == 2:
		all := []any{}
		for part := range strings.SplitSeq(fmt.Sprint(r.value(arg.Items[1])), arg.Items[0].String()) {
			all = append(all, part)
		}
		return all
	}
	r.fail("%s: this resolver does not know it", name)
	return nil
}

func (r *resolver) reference(target string) any {
	if target == "AWS::NoValue" {
		return nil
	}
	v, ok := r.values[target]
	if !ok {
		parameter := r.p.Template.Get("Parameters", target)
		if parameter.Get("Default") == nil {
			r.fail("%s: it stands for nothing", target)
		}
		v = parameter.Get("Default").String()
	}
	kind := r.p.Template.Get("Parameters", target, "Type").String()
	if strings.Contains(kind, "List") { // an empty text is a list of one
		return r.call("Fn::Split", &Node{Kind: List, Items: []*Node{{Text: ","}, {Text: v}}})
	}
	return v
}

func (r *resolver) holds(n *Node) bool {
	name, arg := n.Call()
	all := arg.Each()
	switch {
	case name == "Condition":
		return r.holds(r.p.Template.Get("Conditions", arg.String()))
	case name == "Fn::Not" && len(all) == 1:
		return !r.holds(all[0])
	case name == "Fn::And":
		return !slices.ContainsFunc(all, func(n *Node) bool { return !r.holds(n) })
	case name == "Fn::Or":
		return slices.ContainsFunc(all, r.holds)
	case name == "Fn::Equals" && len(all) == 2:
		return fmt.Sprint(r.value(all[0])) == fmt.Sprint(r.value(all[1]))
	}
	r.fail("condition %s: this resolver does not know it", n.Short())
	return false
}

// targets are what the node refers to: resources, also as Resource.Attribute, parameters and conditions.
func (n *Node) targets() []string {
	var out []string
	n.walk(func(n *Node) {
		switch name, arg := n.Call(); name {
		case "Ref":
			out = append(out, arg.String())
		case "Fn::If":
			out = append(out, arg.Items[0].String())
		case "Fn::GetAtt":
			out = append(out, join(arg.Items, "."))
		case "Fn::Sub":
			for _, m := range placeholder.FindAllStringSubmatch(arg.String(), -1) {
				out = append(out, m[1])
			}
		}
	})
	return out
}
