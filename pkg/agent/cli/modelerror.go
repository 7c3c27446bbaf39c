package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/openai"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// advised is a provider's adapter whose errors also say where the model was looked for and what to do. It is for people at a command
// line: a deployed function has neither these variables nor a --model.
type advised struct {
	runtime.Model
	where string // the URL; "" = the SDK's choice
	what  advice
}

// advice says what to do about an error of a class, and where the server does not know the model; "" = nothing.
type advice func(class agent.ModelErrorClass, unknown bool) string

// Generate implements runtime.Model.
func (m advised) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	reply, err := m.Model.Generate(ctx, r)
	var failed *agent.ModelError
	if !errors.As(err, &failed) {
		return reply, err
	}
	told := *failed
	if m.where != "" {
		told.Message = m.where + ": " + told.Message
	}
	if todo := m.what(failed.Class, failed.Lasting); todo != "" {
		told.Message += " (" + todo + demoInstead + ")"
	}
	return reply, &told
}

// CountTokens implements runtime.TokenCounter, where the adapter does.
func (m advised) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return runtime.CountWith(ctx, m.Model, r)
}

const demoInstead = " --model demo plays the sample agents without a model"

// keyVariable is where the command finds the key of OpenAI-compatible servers.
const keyVariable = "OPENAI_API_KEY"

func (p *program) openai(m agent.ModelSpec, heard agent.OnDelta) (runtime.Model, error) {
	key := p.getenv(keyVariable)
	adapter, err := openai.New(openai.Config{BaseURL: m.BaseURL, Key: key, OnDelta: heard})
	if err != nil {
		return nil, err
	}
	what := func(class agent.ModelErrorClass, unknown bool) string {
		switch {
		case unknown:
			return "does the server have this model, and is this its URL?"
		case class == agent.ModelConnection, class == agent.ModelUnavailable:
			return "is the server running, and is this its URL?"
		case class == agent.ModelAuth && key == "":
			return keyVariable + ", which holds the key, is not set."
		case class == agent.ModelAuth:
			return "is the key in " + keyVariable + " one of this server's?"
		default:
			return ""
		}
	}
	return advised{adapter, cmp.Or(m.BaseURL, openai.DefaultBaseURL), what}, nil
}

// bedrockAdvice says what to do where Amazon Bedrock does not answer.
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
