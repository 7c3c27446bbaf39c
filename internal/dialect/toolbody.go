package dialect

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

const maxElementDepth = 64

// toolElement is an element of the small part of XML that calls are written in: elements, texts with entities, CDATA
// and comments. Attributes mean nothing. An ampersand that begins no entity stands for itself (seed 004).
type toolElement struct {
	name     string
	text     strings.Builder // of its own, entities resolved
	children []*toolElement
}

// isBlank reports whether there is no text beside the children.
func (e *toolElement) isBlank() bool { return strings.TrimSpace(e.text.String()) == "" }

type elementReader struct {
	in   string         // what is left
	open []*toolElement // from the root to the one that is being read
}

func (r *elementReader) top() *toolElement { return r.open[len(r.open)-1] }

// next takes one piece: a text up to a tag, or a tag.
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

// errBareAngle says what a model that meant a text has to do.
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

// entities are the five that XML has by itself.
var entities = map[string]string{"lt": "<", "gt": ">", "amp": "&", "quot": `"`, "apos": "'"}

// reference is what may be one: an entity, or a character's number, with at most ten bytes between & and ;.
var reference = regexp.MustCompile(`&(?:lt|gt|amp|quot|apos|#[0-9]{1,9}|#x[0-9A-Fa-f]{1,8});`)

// resolveReferences replaces the references in a text by what they stand for. Text that is no reference stays.
func resolveReferences(text string) string {
	return reference.ReplaceAllStringFunc(text, func(written string) string {
		name := written[1 : len(written)-1]
		if said, ok := entities[name]; ok {
			return said
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
