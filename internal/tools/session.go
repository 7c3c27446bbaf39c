package tools

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// caller carries out a call of a tool.
type caller func(ctx context.Context, t agent.ToolSpec, c tool.Call) (agent.ToolResultData, error)

// remoteTool is a tool whose calls a session carries out.
type remoteTool struct {
	spec agent.ToolSpec
	call caller
}

func (t remoteTool) Spec() agent.ToolSpec { return t.spec }

func (t remoteTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	return t.call(ctx, t.spec, c)
}

// session is one invocation's use of tools that have no connection beyond a call. What is under way ends with it.
type session struct {
	ctx    context.Context
	cancel context.CancelFunc
	ended  error // of calls after the end
	call   caller
}

func newSession(call caller, ended error) *session {
	ctx, cancel := context.WithCancel(context.Background())
	return &session{ctx, cancel, ended, call}
}

func (s *session) Close() { s.cancel() }

func (s *session) Tool(t agent.ToolSpec) tool.Tool {
	return remoteTool{t, func(ctx context.Context, t agent.ToolSpec, c tool.Call) (agent.ToolResultData, error) {
		if s.ctx.Err() != nil {
			return agent.ToolResultData{}, s.ended
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		return s.call(ctx, t, c)
	}}
}
