package openai

import (
	"context"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// Servers asks the server that a request's model names, with that server's key. All requests share their connections.
// Safe for concurrent use if OnDelta is.
type Servers struct {
	OwnKey  string        // OpenAI's, which goes to no other server; "" = none
	Secrets tool.Secrets  // where models' own keys are
	OnDelta agent.OnDelta // is told of replies as they arrive; nil = nobody is
}

// Generate makes one request, as Model.Generate does. A key that there is not is ModelAuth, one that cannot be read now
// ModelUnavailable.
func (s Servers) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	key, err := s.key(ctx, r)
	if err != nil {
		return agent.Reply{}, err
	}
	m, err := New(Config{BaseURL: r.Model.BaseURL, Key: key, OnDelta: s.OnDelta})
	if err != nil {
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: err.Error(), Cause: err}
	}
	return m.Generate(ctx, r)
}

func (s Servers) key(ctx context.Context, r agent.Request) (string, error) {
	name, ok := r.Model.KeySecret()
	switch {
	case !ok && OwnHost(r.Model.BaseURL):
		return s.OwnKey, nil
	case !ok:
		return "", nil
	}
	key, err := s.Secrets.Secret(ctx, r.Tenant, name)
	if err == nil {
		return key, nil
	}
	class := agent.ModelUnavailable
	if errors.Is(err, tool.ErrNoSecret) {
		class = agent.ModelAuth
	}
	return "", &agent.ModelError{Class: class, Model: r.Model.ID, Message: fmt.Sprintf("key: secret %s: %v", name, err), Cause: err}
}
