package cli

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/model/openai"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
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

// modelWithAdvice adds to a provider's errors the URL that was tried and what to do. It is only for people at a
// command line: a deployed function has neither these variables nor --model.
type modelWithAdvice struct {
	runtime.Model
	url    string // the URL; "" = the SDK's choice
	advise advice
}

// advice returns what to do about an error of a class, or about a model that the server does not know; "" = nothing.
type advice func(class agent.ModelErrorClass, unknown bool) string

// Generate implements runtime.Model.
func (m modelWithAdvice) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := m.Model.Generate(ctx, r)
	var failed *agent.ModelError
	if !errors.As(err, &failed) {
		return reply, err
	}
	advised := *failed
	if r.Inference == 1 && slices.Contains(unreachableMessages, failed.Message) {
		// a run that has come farther waits until the server is back
		advised.Lasting = true
	}
	if m.url != "" {
		advised.Message = m.url + ": " + advised.Message
	}
	if todo := m.advise(failed.Class, failed.Lasting); todo != "" {
		advised.Message += " (" + todo + demoHint + ")"
	}
	return reply, &advised
}

// unreachableMessages are errors of a server that is not running or is elsewhere. A run that begins does not wait for
// such a server.
var unreachableMessages = []string{"connection refused", "host name not found"}

// CountTokens implements runtime.TokenCounter if the adapter does.
func (m modelWithAdvice) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return runtime.CountWith(ctx, m.Model, r)
}

const demoHint = " --model demo plays agents/refunds and agents/screenshots without a model"

// openaiAdvice returns advice for errors of an OpenAI-compatible server.
func (p *program) openaiAdvice(m agent.ModelSpec) advice {
	const keyVariable = local.EnvOpenAIKey
	secret, named := m.KeySecret()
	return func(class agent.ModelErrorClass, unknown bool) string {
		switch {
		case unknown:
			return "does the server have this model, and is this its URL?"
		case class == agent.ModelConnection, class == agent.ModelUnavailable:
			return "is the server running, and is this its URL?"
		case class == agent.ModelAuth && named:
			return "is the secret " + secret + " (" + secrets.Env + secret + " in the environment) the key of this server?"
		case class == agent.ModelAuth && !openai.OwnHost(m.BaseURL):
			return "does it want a key? " + keyVariable + " goes to OpenAI alone; model.key: ${secret:NAME} in agent.yaml " +
				"names another server's, which " +
				secrets.Env + "NAME in the environment holds."
		case class == agent.ModelAuth && p.getenv(keyVariable) == "":
			return keyVariable + ", which holds the key, is not set."
		case class == agent.ModelAuth:
			return "is the key in " + keyVariable + " one of this server's?"
		default:
			return ""
		}
	}
}

// bedrockAdvice returns advice for errors of Amazon Bedrock.
func bedrockAdvice(class agent.ModelErrorClass, unknown bool) string {
	switch {
	case unknown:
		return "is this model offered in the region AWS_REGION?"
	case class == agent.ModelAuth:
		return "Amazon Bedrock needs AWS_REGION and credentials with access to this model: AWS_PROFILE, " +
			"or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
	case class == agent.ModelConnection:
		return "is there a network, and is AWS_REGION a region of Amazon Bedrock?"
	default:
		return ""
	}
}
