package samtest

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
)

//go:embed names.json
var namesJSON []byte

// spec is the names of AWS's own resource specification, written by tools/template/names.mjs.
var spec = func() (s struct {
	Source string
	// Types are the properties of AWS::Serverless types and of the types inside them, by name: "" for a value that is not looked into,
	// "T" for one of type T, "[]T" for a list and "{}T" for a map of them.
	Types map[string]map[string]string
	// Attributes are what GetAtt may ask of the types that the template uses.
	Attributes map[string][]string
}) {
	if err := json.Unmarshal(namesJSON, &s); err != nil {
		panic(err) // it is part of the binary
	}
	return s
}()

// newer are properties that SAM has and AWS's specification does not list yet, with their type.
var newer = map[string]map[string]string{
	"AWS::Serverless::Function": {"LoggingConfig": "AWS::Lambda::Function.LoggingConfig"}, // SAM 1.80, November 2023
}

func typeOf(kind, property string) (nested string, known bool) {
	if nested, known = newer[kind][property]; known {
		return nested, true
	}
	nested, known = spec.Types[kind][property]
	return nested, known
}

// properties says which properties of AWS::Serverless resources have names that SAM does not know.
func properties(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources() {
		if !strings.HasPrefix(r.Type, "AWS::Serverless::") {
			continue
		}
		if spec.Types[r.Type] == nil {
			found = append(found, r.problem(r.Node.Get("Type"), "%s: no such type", r.Type))
			continue
		}
		found = append(found, r.names(r.Type, r.Properties)...)
	}
	return found
}

// names looks at the keys of a value of the type, and into it.
func (r Resource) names(kind string, n *Node) []Problem {
	if name, _ := n.Call(); n == nil || n.Kind != Map || name != "" {
		return nil
	}
	var found []Problem
	for _, e := range n.Entries {
		nested, known := typeOf(kind, e.Key)
		if !known {
			found = append(found, r.problem(&Node{Line: e.Line}, "%s: %s has no such property", e.Key, kind))
			continue
		}
		if list, ok := strings.CutPrefix(nested, "[]"); ok {
			for _, item := range e.Value.Each() {
				found = append(found, r.names(list, item)...)
			}
		} else if table, ok := strings.CutPrefix(nested, "{}"); ok {
			for _, item := range e.Value.entries() {
				found = append(found, r.names(table, item.Value)...)
			}
		} else if nested != "" {
			found = append(found, r.names(nested, e.Value)...)
		}
	}
	return found
}

// inGlobals is what SAM takes of a function in Globals.
var inGlobals = []string{
	"Handler", "Runtime", "CodeUri", "DeadLetterQueue", "Description", "MemorySize", "Timeout", "VpcConfig", "Environment", "Tags", "Tracing",
	"KmsKeyArn", "Layers", "AutoPublishAlias", "DeploymentPreference", "RolePath", "PermissionsBoundary", "ReservedConcurrentExecutions",
	"ProvisionedConcurrencyConfig", "AssumeRolePolicyDocument", "EventInvokeConfig", "Architectures", "EphemeralStorage", "SnapStart",
	"RuntimeManagementConfig", "LoggingConfig",
}

// globals says what stands in Globals and may not.
func globals(p *Project) []Problem {
	var found []Problem
	for _, section := range p.Template.Get("Globals").entries() {
		r := Resource{ID: "Globals." + section.Key, Type: "AWS::Serverless::" + section.Key, Line: section.Line}
		if section.Key != "Function" {
			found = append(found, r.problem(nil, "want Function alone: nothing else is looked at"))
			continue
		}
		for _, e := range section.Value.entries() {
			if !slices.Contains(inGlobals, e.Key) {
				found = append(found, r.problem(&Node{Line: e.Line}, "%s: SAM does not take it in Globals", e.Key))
			}
		}
		found = append(found, r.names(r.Type, section.Value)...)
	}
	return found
}
