package bedrock

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

var errSchema = errors.New("has a schema that is not a JSON object")

// jsonText is a document that is sent byte for byte. The SDK's own documents are Go values: to make one of JSON sorts
// its keys and, unless every number is turned into the SDK's kind, rounds its digits. The embedded document is there
// for the method that marks a document and is otherwise not used.
type jsonText struct {
	document.Interface
	text []byte
}

// verbatim makes a document of JSON that the caller has checked.
func verbatim(text []byte) document.Interface {
	return jsonText{document.NewLazyDocument(nil), text}
}

// MarshalSmithyDocument is the JSON.
func (j jsonText) MarshalSmithyDocument() ([]byte, error) { return j.text, nil }

// UnmarshalSmithyDocument decodes the JSON into v; numbers in an interface are json.Number.
func (j jsonText) UnmarshalSmithyDocument(v any) error {
	d := json.NewDecoder(bytes.NewReader(j.text))
	d.UseNumber()
	return d.Decode(v)
}

// isObject reports whether a text is one JSON object.
func isObject(text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
}

// inputOf is the JSON of a call's input that the SDK has decoded: digits as they came, no escapes that JSON does not
// need.
func inputOf(d document.Interface) (json.RawMessage, error) {
	if d == nil {
		return nil, nil
	}
	text, err := d.MarshalSmithyDocument()
	if err != nil {
		return nil, modelError(agent.ModelInvalid, "reply has a tool call whose input cannot be read")
	}
	var v any
	if err := (jsonText{text: text}).UnmarshalSmithyDocument(&v); err != nil {
		return nil, modelError(agent.ModelInvalid, "reply has a tool call whose input cannot be read")
	}
	return run.MarshalVerbatim(v)
}
