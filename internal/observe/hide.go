package observe

import (
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// Hide says what is kept out of spans, in the words of OpenInference's OPENINFERENCE_HIDE_* variables. The zero Hide
// hides nothing; see HideFromEnv for what holds where nobody said anything.
type Hide struct {
	Inputs         bool // input.value, tool.parameters, input messages, tool definitions
	Outputs        bool // output.value, output messages
	InputMessages  bool
	OutputMessages bool
	InputText      bool // text and tool arguments in input messages
	OutputText     bool // text and tool arguments in output messages
	InputImages    bool // names and types of media in input messages; their bytes are never written
	Tools          bool // tool definitions
}

// redacted stands where a value is hidden.
const redacted = "__REDACTED__"

// HideFromEnv reads OPENINFERENCE_HIDE_*. INPUTS and OUTPUTS are hidden unless their variable says false: agents that
// need a countersignature handle what not everybody with access to traces may read. The other switches are off unless
// they say true.
func HideFromEnv(getenv func(string) string) (Hide, error) {
	h := Hide{Inputs: true, Outputs: true}
	for name, to := range map[string]*bool{
		"INPUTS": &h.Inputs, "OUTPUTS": &h.Outputs, "INPUT_MESSAGES": &h.InputMessages, "OUTPUT_MESSAGES": &h.OutputMessages,
		"INPUT_TEXT": &h.InputText, "OUTPUT_TEXT": &h.OutputText, "INPUT_IMAGES": &h.InputImages, "LLM_TOOLS": &h.Tools,
	} {
		name = "OPENINFERENCE_HIDE_" + name
		v := strings.TrimSpace(getenv(name))
		if v == "" {
			continue
		}
		hide, err := strconv.ParseBool(strings.ToLower(v))
		if err != nil {
			return Hide{}, fmt.Errorf("%s: got %q, want true or false", name, v)
		}
		*to = hide
	}
	return h, nil
}

func (h Hide) input(v string) attribute.KeyValue { return keyInput.String(hiddenOr(h.Inputs, v)) }

func (h Hide) output(v string) attribute.KeyValue { return keyOutput.String(hiddenOr(h.Outputs, v)) }

func hiddenOr(hidden bool, v string) string {
	if hidden {
		return redacted
	}
	return v
}
