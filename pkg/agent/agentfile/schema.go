package agentfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/countersign/countersign/internal/agent"
)

// Schema is the JSON Schema of agent.yaml, draft 2020-12, for editors to complete and check from. It is made of the
// readers of the keys themselves, so it knows every key. What depends on more than one key, on files or on registered
// code, Parse alone says.
func Schema() json.RawMessage {
	root := schemaField("")
	newReader("agent.yaml", Options{AllowUnknownTools: true}).definition(root)
	root.schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root.schema["title"] = "agent.yaml of Countersign"
	text, err := json.MarshalIndent(root.schema, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("marshal the schema: %v", err)) // it is made of texts, numbers, lists and maps
	}
	return text
}

// object is a JSON object.
type object = map[string]any

// schemaField stands for any value at a path: who reads it describes there what it takes.
func schemaField(path string) field {
	return field{path: path, node: &node{kind: kindSchema, schema: object{}}}
}

// describe writes what a reader takes, where f stands for any value; false where it is a value to read.
func (f field) describe(schema object) bool {
	if f.kind != kindSchema {
		return false
	}
	maps.Copy(f.schema, schema)
	return true
}

// presets are the words of the key preset.
var presets = agent.EnumValues(reflect.TypeFor[agent.Preset]())
