package tools

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/tool"
)

// definition is a tool as its server describes it, word for word.
type definition struct {
	Name         string          `json:"name"`
	Title        json.RawMessage `json:"title"`
	Description  json.RawMessage `json:"description"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema"`
	Annotations  json.RawMessage `json:"annotations"`
	Execution    json.RawMessage `json:"execution"`

	digest string
}

// definitionLimits of what is read of a definition at all. A schema has tighter ones, which say more.
var definitionLimits = jsonx.JSONLimits{Bytes: maxDefinition, Depth: 100}

// read takes a definition in. Where it cannot be used an error says why, and what is known of its name is there.
func read(raw json.RawMessage) (definition, error) {
	var d definition
	compact, err := jsonx.CompactJSON(raw, definitionLimits)
	switch {
	case len(raw) > maxDefinition:
		err = fmt.Errorf("its definition has %d bytes, want at most %d", len(raw), maxDefinition)
	case err != nil:
		err = fmt.Errorf("its definition cannot be read: %w", err)
	default:
		if err = jsonx.DecodeKnown(compact, definitionLimits, &d); err != nil {
			err = fmt.Errorf("its definition is none: %w", err)
		}
	}
	if err != nil {
		var named struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &named) != nil {
			named.Name = ""
		}
		return definition{Name: named.Name}, err
	}
	d.digest, err = d.sum()
	return d, err
}

// sum returns the hex SHA-256 of everything that a definition promises, whatever the order of its keys: of the keys
// name, title, description, inputSchema, outputSchema and annotations, those that are there and not null. Other keys,
// such as execution, _meta and icons, depend on the protocol's version and reach neither models nor calls.
func (d definition) sum() (string, error) {
	name, err := json.Marshal(d.Name)
	if err != nil {
		return "", err
	}
	parts := map[string]json.RawMessage{"name": name}
	for key, value := range map[string]json.RawMessage{
		"title": d.Title, "description": d.Description, "inputSchema": d.InputSchema, "outputSchema": d.OutputSchema,
		"annotations": d.Annotations,
	} {
		if value != nil && string(value) != "null" {
			parts[key] = value
		}
	}
	whole, err := jsonx.MarshalVerbatim(parts)
	if err != nil {
		return "", err
	}
	form, err := jsonx.CanonicalJSON(whole)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(form))
	return hex.EncodeToString(sum[:]), nil
}

// maxToolName is how long a tool's name may be to the model.
const maxToolName = 64

// tool returns the definition as a tool of an agent, or why it cannot be one. Its texts are not shortened.
func (d definition) tool(server string) (agent.ServerTool, error) {
	name := server + "." + d.Name
	switch {
	case !agent.ValidToolName(name):
		return agent.ServerTool{},
			errors.New("its name cannot be that of a tool: want letters, digits, '_', '-' and dots between them")
	case len(name) > maxToolName:
		return agent.ServerTool{}, fmt.Errorf("its name is too long: %s has %d characters, want at most %d", name, len(name),
			maxToolName)
	}
	args, err := argumentSchema(d.InputSchema)
	if err != nil {
		return agent.ServerTool{}, fmt.Errorf("its inputSchema cannot be used: %w", err)
	}
	var execution struct {
		TaskSupport string `json:"taskSupport"`
	}
	if d.Execution != nil && json.Unmarshal(d.Execution, &execution) == nil && execution.TaskSupport == "required" {
		return agent.ServerTool{}, errors.New("its server runs it as a task alone, and calls here are no tasks")
	}
	var description, title string
	if d.Description != nil && json.Unmarshal(d.Description, &description) != nil {
		return agent.ServerTool{}, errors.New("its description is no text")
	}
	if d.Title != nil && json.Unmarshal(d.Title, &title) != nil {
		return agent.ServerTool{}, errors.New("its title is no text")
	}
	hints, err := d.hints()
	if err != nil {
		return agent.ServerTool{}, err
	}
	hints.Title = visible(cmp.Or(title, hints.Title))
	return agent.ServerTool{Name: d.Name, Description: visible(description), Schema: args, Hints: hints,
		Digest: d.digest}, nil
}

// argumentSchema returns a schema that arguments can be checked against: self-contained, within bounds, of an object.
func argumentSchema(raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, errors.New("there is none")
	}
	compact, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{Bytes: maxArguments})
	if err != nil {
		return nil, err
	}
	if err := agent.CheckSchema(compact); err != nil {
		return nil, err
	}
	if compact, err = shown(compact); err != nil {
		return nil, err
	}
	if _, err := tool.Compile(compact); err != nil {
		return nil, errors.New(agent.Bounded(visible(err.Error())))
	}
	return compact, nil
}

// shown returns a schema without hidden characters, and without patterns that cannot be checked. In descriptions such
// characters are made visible. Anywhere else they are refused, because making them visible would change the meaning.
func shown(raw json.RawMessage) (json.RawMessage, error) {
	v, err := jsonx.DecodeNumbers(raw)
	if err != nil {
		return nil, err
	}
	changed, err := show(v)
	if dropped := tool.DropPatterns(v); err != nil || !changed && !dropped {
		return raw, err
	}
	return jsonx.MarshalVerbatim(v)
}

// show makes what describes in v visible, and reports whether that changed anything.
func show(v any) (changed bool, err error) {
	var each []any
	switch v := v.(type) {
	case string:
		if visible(v) != v {
			return false, errors.New("it hides characters")
		}
	case []any:
		each = v
	case map[string]any:
		for key, child := range v {
			text, isText := child.(string)
			if describes := key == "description" || key == "title" || key == "$comment"; isText && describes &&
				visible(text) != text {
				v[key], changed = visible(text), true
				continue
			}
			each = append(each, key, child)
		}
	}
	for _, part := range each {
		inner, err := show(part)
		if err != nil {
			return false, err
		}
		changed = changed || inner
	}
	return changed, nil
}

// hints returns the annotations, with the protocol's defaults for those that are left out.
func (d definition) hints() (agent.MCPHints, error) {
	var a struct {
		Title           string `json:"title"`
		ReadOnlyHint    bool   `json:"readOnlyHint"`
		DestructiveHint *bool  `json:"destructiveHint"`
		IdempotentHint  bool   `json:"idempotentHint"`
		OpenWorldHint   *bool  `json:"openWorldHint"`
	}
	if d.Annotations != nil {
		if err := jsonx.DecodeKnown(d.Annotations, definitionLimits, &a); err != nil {
			return agent.MCPHints{}, fmt.Errorf("its annotations are none: %w", err)
		}
	}
	yes := func(said *bool) bool { return said == nil || *said }
	return agent.MCPHints{
		Title: a.Title, ReadOnly: a.ReadOnlyHint, Destructive: !a.ReadOnlyHint && yes(a.DestructiveHint),
		Idempotent: a.ReadOnlyHint || a.IdempotentHint, OpenWorld: yes(a.OpenWorldHint),
	}, nil
}
