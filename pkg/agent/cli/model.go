package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/aws/awsconfig"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/model/bedrock"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/standin"
)

// adapter makes the adapter of a model. The key of OpenAI's API is the only credential read here; the AWS SDK finds its own.
// What models write is told to heard, if it is not nil, while they write it.
func (p *program) adapter(m agent.ModelSpec, heard agent.OnDelta) (runtime.Model, error) {
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
		model := script.New(s)
		model.OnDelta = heard
		return model, nil
	case "openai":
		return p.openai(m, heard)
	case "bedrock":
		return p.bedrock(heard)
	case "demo":
		return standin.Model{}, nil
	default:
		return nil, fmt.Errorf("model provider %q: not supported yet", m.Provider)
	}
}

// configureWithin bounds how long the AWS SDK may look for its configuration.
const configureWithin = 10 * time.Second

// bedrock is Amazon Bedrock with the credentials and the region that the AWS SDK finds where it always does. All models share one client.
func (p *program) bedrock(heard agent.OnDelta) (runtime.Model, error) {
	cfg, err := p.aws.config(p.clock)
	if err != nil {
		return nil, err
	}
	p.aws.bedrockOnce.Do(func() { p.aws.bedrock = bedrock.NewClient(cfg, "") })
	return advised{Model: bedrock.New(bedrock.Config{Client: p.aws.bedrock, Stream: true, OnDelta: heard}), what: bedrockAdvice}, nil
}

// awsClients is what the process' clients of AWS share, loaded when the first of them is needed, and its client of Amazon Bedrock.
type awsClients struct {
	loadOnce    sync.Once
	loaded      aws.Config
	err         error
	bedrockOnce sync.Once
	bedrock     bedrock.API
}

// config returns the configuration of the process' clients.
func (a *awsClients) config(clk clock.Clock) (aws.Config, error) {
	a.loadOnce.Do(func() {
		ctx, cancel := clk.WithTimeout(context.Background(), configureWithin)
		defer cancel()
		a.loaded, a.err = awsconfig.Load(ctx)
	})
	return a.loaded, a.err
}

// override is the model, and no other behind it, with what --model says: script:FILE, bedrock:MODEL_ID, openai:MODEL or openai:MODEL@BASE_URL, demo.
func override(m agent.ModelSpec, spec string) (agent.ModelSpec, error) {
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
		return m, usage("--model: got %q, want script:FILE, bedrock:MODEL_ID, openai:MODEL@BASE_URL or demo", spec)
	}
}
