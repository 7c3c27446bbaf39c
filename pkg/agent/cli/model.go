package cli

import (
	"cmp"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/runtime"
)

// newModel returns the adapter of a model. Its errors say what to do.
func (p *program) newModel(m agent.ModelSpec, onDelta agent.OnDelta) (runtime.Model, error) {
	model, err := local.Adapter(m, p.home, p.getenv, &p.aws, onDelta)
	switch {
	case err != nil:
		return nil, err
	case m.Provider == "openai":
		return modelWithAdvice{model, cmp.Or(m.BaseURL, openai.DefaultBaseURL), p.openaiAdvice(m)}, nil
	case m.Provider == "bedrock":
		return modelWithAdvice{Model: model, advise: bedrockAdvice}, nil
	default:
		return model, nil
	}
}

// overrideModel applies --model to a model and drops its fallbacks. The value is script:FILE, bedrock:MODEL_ID,
// openai:MODEL, openai:MODEL@BASE_URL or demo.
func overrideModel(m agent.ModelSpec, spec string) (agent.ModelSpec, error) {
	provider, rest, _ := strings.Cut(spec, ":")
	m.Provider, m.ID, m.BaseURL, m.Key, m.Options, m.File, m.Fallbacks = provider, "", "", "", nil, "", nil
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
	case provider == "bedrock" && rest != "":
		m.ID = rest
		return m, nil
	default:
		return m, usageErrorf("--model: got %q, want script:FILE, bedrock:MODEL_ID, openai:MODEL@BASE_URL or demo",
			spec)
	}
}
