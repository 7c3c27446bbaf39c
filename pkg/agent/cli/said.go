package cli

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// readJSONArg reads an argument that is JSON, @FILE, or - for standard input. flag names it in errors, which do not repeat the value.
func (p *program) readJSONArg(flag, arg string) (json.RawMessage, error) {
	data, err := p.readArg(arg)
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	v, err := jsonx.CompactJSON(data, jsonx.JSONLimits{})
	if err != nil {
		return nil, usageErrorf("%s: %v", flag, err)
	}
	return v, nil
}

func (p *program) readArg(arg string) ([]byte, error) {
	if arg == "-" {
		return io.ReadAll(p.stdin)
	}
	if file, ok := strings.CutPrefix(arg, "@"); ok {
		return os.ReadFile(file)
	}
	return []byte(arg), nil
}

// formatOutput is a run's output for people: a text as it is, anything else as JSON.
func formatOutput(raw json.RawMessage) string {
	var s string
	switch err := json.Unmarshal(raw, &s); {
	case len(raw) == 0 || string(raw) == "null":
		return ""
	case err == nil:
		return lines(s)
	default:
		return lines(string(raw))
	}
}
