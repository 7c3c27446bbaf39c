package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// maxToolBody is the longest call in tags that is parsed, in bytes (seed 004).
const maxToolBody = 10 << 20

// TextCall is a parsed call between tool tags.
type TextCall struct {
	Server string // "" = none was named
	Tool   string // as the model wrote it
	// arguments as elements become an object of texts, lists and objects; others stay as they were written
	Arguments json.RawMessage
	Elements  bool // the arguments came as elements, so the tool's schema decides about the types of texts
}

// TextCallError says why the text between tool tags is not a call. The model may see its text.
type TextCallError struct {
	Field   string // missing field; "" = the body could not be parsed
	Problem string
}

func (e *TextCallError) Error() string { return e.Problem }

// Call parses the text between the first pair of tool tags: JSON if it begins with a brace, otherwise elements. A call
// may omit its server only if missing is local, and may omit arguments. The end tag may be missing after a JSON object,
// which shows that it is complete, but not after elements. Errors are *TextCallError. Use it only for texts with a tag.
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

// localServer is the server of every tool that does not belong to another server.
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
	case !isJSON: // its arguments may be missing
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

// nameIn reads a name; "" if there is none.
func nameIn(key string, raw json.RawMessage) (string, error) {
	name, ok := jsonx.JSONString(raw)
	if !ok && len(raw) > 0 && string(raw) != "null" {
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

// arguments returns the arguments of the element. Without child elements they are JSON.
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

// value returns the element's text, or an object of its children. Children of the same name become a list.
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
		before, present := object[child.name]
		list, isList := before.([]any) // a single value is not a list
		switch {
		case isList:
			object[child.name] = append(list, value)
		case present:
			object[child.name] = []any{before, value}
		default:
			object[child.name] = value
		}
	}
	return object, nil
}

// CallFormat returns the instruction how the definition's model has to write a call.
func CallFormat(d *agent.Definition) string {
	if d.Model.Dialect != agent.DialectXML {
		return d.Word(agent.WordFormatNative, nil)
	}
	// Take a tool of d as the example.
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

// ToolLine returns the line about a tool in the list of a system text.
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

// ServerOf returns the server of a tool and its name there. For an MCP tool they are separated by the dot of its name.
// For any other tool they are local and the model-facing name.
func ServerOf(t agent.ToolSpec) (server, name string) {
	if server, name, ok := strings.Cut(t.Name, "."); ok && t.Kind == agent.KindMCP && server != localServer {
		return server, name
	}
	return localServer, t.ModelName()
}

// textOfCall returns a call of a tool as a model in DialectXML writes it. The arguments can never end the tag.
func textOfCall(t agent.ToolSpec, arguments json.RawMessage) string {
	server, name := ServerOf(t)
	form := `{"server_name": ` + string(agent.TextOutput(server)) + `, "tool_name": ` + string(agent.TextOutput(name)) +
		`, "arguments": ` + string(arguments) + `}`
	return tagTool + "\n" + strings.ReplaceAll(form, "</", `<\/`) + "\n" + tagToolEnd
}

const maxElementDepth = 64

// toolElement is an element of the small part of XML in which calls are written: elements, texts with entities, CDATA
// and comments. Attributes are ignored. An ampersand that begins no entity is plain text (seed 004).
type toolElement struct {
	name     string
	text     strings.Builder // its own text, entities resolved
	children []*toolElement
}

// isBlank reports whether there is no text beside the children.
func (e *toolElement) isBlank() bool { return strings.TrimSpace(e.text.String()) == "" }

type elementReader struct {
	in   string         // unread text
	open []*toolElement // open elements, from the root inward
}

func (r *elementReader) top() *toolElement { return r.open[len(r.open)-1] }

// next reads one piece: a text up to a tag, or a tag.
func (r *elementReader) next() error {
	i := strings.IndexByte(r.in, '<')
	if i != 0 {
		if i < 0 {
			i = len(r.in)
		}
		r.top().text.WriteString(resolveReferences(r.in[:i]))
		r.in = r.in[i:]
		return nil
	}
	switch {
	case strings.HasPrefix(r.in, "<![CDATA["):
		text, err := r.readBetween("<![CDATA[", "]]>")
		r.top().text.WriteString(text)
		return err
	case strings.HasPrefix(r.in, "<!--"):
		_, err := r.readBetween("<!--", "-->")
		return err
	case strings.HasPrefix(r.in, "</"):
		name, err := r.readBetween("</", ">")
		if err != nil {
			return err
		}
		name = strings.TrimSpace(name)
		if len(r.open) == 1 || r.top().name != name {
			short := []rune(name)
			return fmt.Errorf("</%s> ends nothing that is open", string(short[:min(len(short), 64)]))
		}
		r.open = r.open[:len(r.open)-1]
		return nil
	default:
		return r.readStartTag()
	}
}

// readBetween reads the text between two marks; the first mark is next.
func (r *elementReader) readBetween(first, last string) (string, error) {
	text, rest, ok := strings.Cut(r.in[len(first):], last)
	if !ok {
		return "", fmt.Errorf("%s has no %s", first, last)
	}
	r.in = rest
	return text, nil
}

// errBareAngle tells a model how to write a < in a text.
var errBareAngle = errors.New("a < begins no element; in a text write it as &lt;, or the text as <![CDATA[...]]>")

func (r *elementReader) readStartTag() error {
	n := 1
	for n < len(r.in) && isNameByte(r.in[n], n == 1) {
		n++
	}
	if n == 1 {
		return errBareAngle
	}
	e := &toolElement{name: r.in[1:n]}
	end, quote := 0, byte(0)
	for i := n; i < len(r.in) && end == 0; i++ { // skip the attributes
		switch c := r.in[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '<':
			return errBareAngle
		case c == '>':
			end = i
		}
	}
	if end == 0 {
		return fmt.Errorf("<%s has no >", e.name)
	}
	if len(r.open) > maxElementDepth {
		return fmt.Errorf("elements stand deeper than %d levels within each other", maxElementDepth)
	}
	r.top().children = append(r.top().children, e)
	if !strings.HasSuffix(r.in[:end], "/") {
		r.open = append(r.open, e)
	}
	r.in = r.in[end+1:]
	return nil
}

func isNameByte(c byte, first bool) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
	return letter || !first && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == ':')
}

// entities are the five entities that are built into XML.
var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// reference matches an entity or a character's number, with at most ten bytes between & and ;.
var reference = regexp.MustCompile(`&(?:lt|gt|amp|quot|apos|#[0-9]{1,9}|#x[0-9A-Fa-f]{1,8});`)

// resolveReferences replaces the references in a text by their characters. Other text stays.
func resolveReferences(text string) string {
	return reference.ReplaceAllStringFunc(text, func(written string) string {
		name := written[1 : len(written)-1]
		if character, ok := entities[name]; ok {
			return character
		}
		digits, base := name[1:], 10
		if hex, ok := strings.CutPrefix(digits, "x"); ok {
			digits, base = hex, 16
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || n == 0 || n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return written
		}
		return string(rune(n))
	})
}
