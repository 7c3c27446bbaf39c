package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// maxToolBody is the longest call in tags that is read, in bytes (seed 004).
const maxToolBody = 10 << 20

// TextCall is a call as it stands between tool tags.
type TextCall struct {
	Server string // "" = none was named
	Tool   string // as the model wrote it
	// an object where they came as elements, whose values are texts, lists and objects; else as they were written
	Arguments json.RawMessage
	Elements  bool // they came as elements: what a text means is for the tool's schema to say
}

// TextCallError says why what stands between tool tags is no call. Its text is fit for the model.
type TextCallError struct {
	Field   string // that is missing; "" = the body could not be read
	Problem string
}

func (e *TextCallError) Error() string { return e.Problem }

// Call reads what stands between the first pair of tool tags: JSON where it begins with a brace, else elements. Only
// where missing is local a call may leave out its server; without arguments it has none. A JSON object shows by itself
// that it is whole, so that its end tag may be missing; elements do not. Errors are *TextCallError. It is asked of
// texts with a tag alone.
func (t ToolText) Call(missing agent.MissingServer) (TextCall, error) {
	c, err := readToolBody(t)
	if err != nil {
		return TextCall{}, &TextCallError{Problem: err.Error()}
	}
	if c.Server == "" && missing == agent.MissingServerLocal {
		c.Server = localServer
	}
	switch {
	case c.Server == "":
		return TextCall{}, &TextCallError{Field: "server_name", Problem: "server_name is missing"}
	case c.Tool == "":
		return TextCall{}, &TextCallError{Field: "tool_name", Problem: "tool_name is missing"}
	}
	if len(c.Arguments) == 0 {
		c.Arguments = json.RawMessage(`{}`)
	}
	return c, nil
}

// localServer is the server of every tool that is not another server's.
const localServer = "local"

func readToolBody(t ToolText) (TextCall, error) {
	if len(t.Body) > maxToolBody {
		return TextCall{}, fmt.Errorf("the call has %d bytes, want at most %d", len(t.Body), maxToolBody)
	}
	read, isJSON := readElementCall, strings.HasPrefix(t.Body, "{")
	if isJSON {
		read = readJSONCall
	}
	c, err := read(t.Body)
	switch {
	case t.Closed:
	case err != nil:
		err = fmt.Errorf("there is no </tool>: %w", err)
	case !isJSON: // its arguments may be among what is missing
		err = errors.New("there is no </tool>")
	}
	return c, err
}

func readJSONCall(body string) (TextCall, error) {
	raw, err := jsonx.CompactJSON([]byte(body), jsonx.JSONLimits{Bytes: maxToolBody})
	if err != nil {
		return TextCall{}, fmt.Errorf("the call is not one JSON object: %w", err)
	}
	var form struct {
		Server    json.RawMessage `json:"server_name"`
		Tool      json.RawMessage `json:"tool_name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &form); err != nil {
		return TextCall{}, fmt.Errorf("the call is not one JSON object: %w", err)
	}
	c := TextCall{Arguments: form.Arguments}
	if string(c.Arguments) == "null" {
		c.Arguments = nil
	}
	if c.Server, err = nameIn("server_name", form.Server); err != nil {
		return TextCall{}, err
	}
	c.Tool, err = nameIn("tool_name", form.Tool)
	return c, err
}

// nameIn reads a name, "" where there is none.
func nameIn(key string, raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return "", fmt.Errorf("%s is not a text", key)
	}
	return strings.TrimSpace(name), nil
}

func readElementCall(body string) (c TextCall, err error) {
	r := elementReader{in: body, open: []*toolElement{{}}} // the root has no name
	for r.in != "" {
		if err := r.next(); err != nil {
			return c, err
		}
	}
	if len(r.open) > 1 {
		return c, fmt.Errorf("<%s> has no end", r.top().name)
	}
	root := r.open[0]
	if !root.isBlank() {
		return c, errors.New("the call is neither a JSON object nor elements: it has text outside of them")
	}
	seen := map[string]bool{}
	for _, e := range root.children {
		if seen[e.name] {
			return c, fmt.Errorf("<%s> stands there twice", e.name)
		}
		seen[e.name] = true
		switch e.name {
		case "server_name", "tool_name":
			if len(e.children) > 0 {
				return c, fmt.Errorf("<%s> is not a text", e.name)
			}
			name := strings.TrimSpace(e.text.String())
			if e.name == "server_name" {
				c.Server = name
			} else {
				c.Tool = name
			}
		case "arguments":
			if c.Arguments, c.Elements, err = e.arguments(); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// arguments are JSON where there are no elements within.
func (e *toolElement) arguments() (raw json.RawMessage, elements bool, err error) {
	text := strings.TrimSpace(e.text.String())
	switch {
	case len(e.children) == 0 && text == "":
		return nil, false, nil
	case len(e.children) == 0:
		if raw, err = jsonx.CompactJSON([]byte(text), jsonx.JSONLimits{Bytes: maxToolBody}); err != nil {
			return nil, false, fmt.Errorf("<arguments> holds neither elements nor one JSON object: %w", err)
		}
		return raw, false, nil
	}
	value, err := e.value()
	if err != nil {
		return nil, false, err
	}
	if raw, err = jsonx.MarshalVerbatim(value); err != nil {
		return nil, false, fmt.Errorf("<arguments>: %w", err)
	}
	return raw, true, nil
}

// value is a text, or an object of the elements within; those of one name are a list.
func (e *toolElement) value() (any, error) {
	if len(e.children) == 0 {
		return e.text.String(), nil
	}
	if !e.isBlank() {
		return nil, fmt.Errorf("<%s> has text beside elements; write < in a text as &lt;, or the text as <![CDATA[...]]>",
			e.name)
	}
	object := map[string]any{}
	for _, child := range e.children {
		value, err := child.value()
		if err != nil {
			return nil, err
		}
		before, again := object[child.name]
		list, isList := before.([]any) // a value by itself is none
		switch {
		case isList:
			object[child.name] = append(list, value)
		case again:
			object[child.name] = []any{before, value}
		default:
			object[child.name] = value
		}
	}
	return object, nil
}

// CallFormat is how the definition's model is to write a call.
func CallFormat(d *agent.Definition) string {
	if d.Model.Dialect != agent.DialectXML {
		return d.Word(agent.WordFormatNative, nil)
	}
	// A call of a tool that d has.
	example := agent.ToolSpec{Name: "TOOL"}
	if own := append(d.LoopBreaking(), d.Tools...); len(own) > 0 {
		example = own[0]
	}
	arguments := `{}`
	switch example.Name {
	case agent.ToolCompletion:
		arguments = `{"result": "The report is written."}`
	case agent.ToolAsk:
		arguments = `{"question": "Which of the two?"}`
	case agent.ToolConverse:
		arguments = `{"message": "Good morning."}`
	}
	return d.Word(agent.WordFormatXML, map[string]any{"Example": textOfCall(example, json.RawMessage(arguments))})
}

// ToolLine is the line about a tool in the list that a system text shows.
func ToolLine(t agent.ToolSpec) string {
	server, name := ServerOf(t)
	line := "- " + name
	if server != localServer {
		line += " (server_name " + server + ")"
	}
	if t.Description != "" {
		line += ": " + strings.TrimSpace(t.Description)
	}
	return line
}

// ServerOf is the server of a tool and its name there: of an MCP tool what stands before and behind the dot, else local
// and the name that the model knows.
func ServerOf(t agent.ToolSpec) (server, name string) {
	if server, name, ok := strings.Cut(t.Name, "."); ok && t.Kind == agent.KindMCP && server != localServer {
		return server, name
	}
	return localServer, t.ModelName()
}

// textOfCall is a call of a tool as a model in DialectXML writes it. What stands in the arguments never ends the tag.
func textOfCall(t agent.ToolSpec, arguments json.RawMessage) string {
	server, name := ServerOf(t)
	form := `{"server_name": ` + string(agent.TextOutput(server)) + `, "tool_name": ` + string(agent.TextOutput(name)) +
		`, "arguments": ` + string(arguments) + `}`
	return tagTool + "\n" + strings.ReplaceAll(form, "</", `<\/`) + "\n" + tagToolEnd
}
