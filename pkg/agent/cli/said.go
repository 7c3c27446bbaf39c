package cli

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
)

// value reads an argument that is JSON, @FILE, or - for standard input. flag names it in errors, which do not repeat the value.
func (p *program) value(flag, arg string) (json.RawMessage, error) {
	data, err := p.bytes(arg)
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	v, err := agent.CompactJSON(data, agent.JSONLimits{})
	if err != nil {
		return nil, usage("%s: %v", flag, err)
	}
	return v, nil
}

func (p *program) bytes(arg string) ([]byte, error) {
	if arg == "-" {
		return io.ReadAll(p.stdin)
	}
	if file, ok := strings.CutPrefix(arg, "@"); ok {
		return os.ReadFile(file)
	}
	return []byte(arg), nil
}

// block is a content block as the API takes it.
type block struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType,omitempty"`
	Data      string `json:"data,omitempty"`
}

// message is what a user says: a text, files, or both.
func message(text string, files []string) (json.RawMessage, error) {
	if len(files) == 0 {
		return json.Marshal(text)
	}
	var blocks []block
	for _, f := range files {
		b, err := attachment(f)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, b)
	}
	if text != "" {
		blocks = append(blocks, block{Type: "text", Text: text})
	}
	return json.Marshal(blocks)
}

func attachment(file string) (block, error) {
	f, err := os.Open(file)
	if err != nil {
		return block{}, usage("--attach: %v", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, api.MaxInline+1))
	switch {
	case err != nil:
		return block{}, usage("--attach: %v", err)
	case len(data) == 0:
		return block{}, usage("--attach %s: the file is empty", file)
	case len(data) > api.MaxInline:
		return block{}, usage("--attach %s: the file is larger than %d KiB; larger files are not supported yet", file, api.MaxInline>>10)
	}
	return block{Type: "media", Name: filepath.Base(file), MediaType: mediaType(file, data), Data: base64.StdEncoding.EncodeToString(data)}, nil
}

// mediaType goes by the name, else by the content.
func mediaType(file string, data []byte) string {
	t := mime.TypeByExtension(filepath.Ext(file))
	if t == "" {
		t = http.DetectContentType(data)
	}
	t, _, _ = strings.Cut(t, ";")
	return t
}

// output is a run's output for people: a text as it is, anything else as JSON.
func output(raw json.RawMessage) string {
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
