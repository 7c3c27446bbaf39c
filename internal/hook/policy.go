package hook

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Policy lists the tools of an agent that need a permission, beside those that its rules name: by original or by
// model-facing name. It is evaluated when a run begins and whenever it is woken (seed 000, permissionPolicy), and what
// it says holds until the next time. A name that is no tool's, like an error, ends the run with permission_failed: a
// list that cannot be taken at its word lets nothing run. It does not widen what rules allow. Safe for concurrent use.
type Policy func(ctx context.Context, in PolicyInput) ([]string, error)

// PolicyInput is what a Policy may go by.
type PolicyInput struct {
	Agent, Version         string
	Subject, AccessControl string // as the run was started; "" = not said
	Tools                  []agent.ToolSpec
}

// PermissionBackend knows the permissions of tools beyond a run (seed 000, PermissionManager). Without one they are in
// the run's own journal. People are asked by the approval desk in either case. Any method may be called again for the
// same moment; an error of Get, Set or Request ends the run with permission_failed. Safe for concurrent use.
type PermissionBackend interface {
	// Get is asked once for each round of calls in which a tool needs a permission, and only about those. The map is by
	// original name; a tool that is not in it is requestable.
	Get(ctx context.Context, c PermissionContext, tools []PermissionTool) (map[string]run.PermissionStatus, error)
	// Set is told what a person has said of tools, before the run goes on.
	Set(ctx context.Context, c PermissionContext, said PermissionWord) error
	// Request says why the tools are needed, for the people who will be asked; "" = nothing to say. It is called once for
	// a round's request under block_and_retry.
	Request(ctx context.Context, c PermissionContext, tools []PermissionTool) (reason string, err error)
	// Cleanup is called before the run's end is committed, well or not, and never when it only waits. It is idempotent: a
	// crash before the commit calls it again, and a message that arrives in that very moment lets the run go on after it.
	// Its error fails a run that would have ended well. Where a run is ended from outside, by cancelling it or by the
	// sweep, it is called behind that end, and again where it fails.
	Cleanup(ctx context.Context, c PermissionContext) error
}

// PermissionContext is whose permissions they are.
type PermissionContext struct {
	Tenant, Run            string
	Agent, Version         string
	Subject, AccessControl string
}

// PermissionTool is a tool and the calls of it that wait to be made.
type PermissionTool struct {
	Spec  agent.ToolSpec
	Calls []PermissionCall
}

// PermissionCall is one of them.
type PermissionCall struct {
	ID   string
	Args json.RawMessage
}

// PermissionWord is one person's word on tools, by original names.
type PermissionWord struct {
	Granted, Denied []string
	By, Note        string
}

// PolicyNames lists the policy functions, sorted.
func (s Set) PolicyNames() []string { return slices.Sorted(maps.Keys(s.Policies)) }

// BackendNames lists the permission backends, sorted.
func (s Set) BackendNames() []string { return slices.Sorted(maps.Keys(s.Backends)) }
