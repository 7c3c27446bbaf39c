package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/openai"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/script"
	"github.com/countersign/countersign/pkg/agent/standin"
)

// adapter makes the adapter of a model. The key of OpenAI's API is the only credential there is.
func (p *program) adapter(m agent.ModelSpec) (runtime.Model, error) {
	switch m.Provider {
	case "script":
		data, err := os.ReadFile(m.File)
		if err != nil {
			return nil, fmt.Errorf("read script: %w", err)
		}
		s, err := script.Parse(m.File, data)
		if err != nil {
			return nil, err
		}
		return script.New(s), nil
	case "openai":
		return openai.New(openai.Config{BaseURL: m.BaseURL, Key: p.getenv("OPENAI_API_KEY")})
	case "demo":
		return standin.Model{}, nil
	default:
		return nil, fmt.Errorf("model provider %q: not supported yet", m.Provider)
	}
}

// override is the model with what --model says: script:FILE, openai:MODEL or openai:MODEL@BASE_URL, demo.
func override(m agent.ModelSpec, spec string) (agent.ModelSpec, error) {
	provider, rest, _ := strings.Cut(spec, ":")
	m.Provider, m.ID, m.BaseURL, m.File = provider, "", "", ""
	switch {
	case provider == "script" && rest != "":
		file, err := filepath.Abs(rest)
		m.File = file
		return m, err
	case provider == "openai" && rest != "":
		m.ID = rest
		if at := strings.LastIndex(rest, "@http"); at >= 0 {
			m.ID, m.BaseURL = rest[:at], rest[at+1:]
		}
		return m, nil
	case spec == "demo":
		m.ID = "stand-in"
		return m, nil
	case provider == "bedrock":
		return m, usage("--model %s: not supported yet", provider)
	default:
		return m, usage("--model: got %q, want script:FILE, openai:MODEL@BASE_URL or demo", spec)
	}
}
