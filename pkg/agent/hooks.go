package agent

import (
	core "github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/hook"
)

// Hooks is the code that agents name beside tools. Hooks.Version is recorded in every run: raise it when what the code
// does changes. The zero value has the built-in plugins alone.
type Hooks = hook.Set

// Builder makes the system text and the first messages of a run. It may be called again for the same inference.
type Builder = hook.Builder

// What a Builder receives and gives.
type (
	// BuildInput is what a Builder receives.
	BuildInput = hook.BuildInput
	// BuildOutput is what a Builder gives.
	BuildOutput = hook.Built
	// BuildMessage is one of the first messages of a run.
	BuildMessage = hook.Message
)

// Plugin takes part in the phases of the loop. Phases that are nil are skipped.
type Plugin = hook.Plugin

// PluginFactory makes a plugin of the configuration that an agent has for it, nil where it has none.
type PluginFactory = hook.Factory

// The phases of the loop, as a Plugin sees them.
type (
	// Phase is the start or end of a run or step.
	Phase = hook.Moment
	// BeforeInference is the phase before the model is asked.
	BeforeInference = hook.BeforeInference
	// Request is what the model is asked, as BeforeInference.Transform changes it.
	Request = core.Request
	// AfterInference is the phase after the model's reply.
	AfterInference = hook.AfterInference
	// BeforeTool is the phase before a call, which may block the call, give its result, or ask people.
	BeforeTool = hook.BeforeTool
	// AfterTool is the phase after a call.
	AfterTool = hook.AfterTool
)

// Policy lists more tools that need a person.
type Policy = hook.Policy

// PolicyInput is what a Policy decides on.
type PolicyInput = hook.PolicyInput

// PermissionBackend keeps the permissions of tools outside the run.
type PermissionBackend = hook.PermissionBackend

// What a PermissionBackend receives and gives.
type (
	// PermissionContext is the run whose permissions are asked for.
	PermissionContext = hook.PermissionContext
	// PermissionTool is a tool that needs a permission.
	PermissionTool = hook.PermissionTool
	// PermissionCall is a call that needs one.
	PermissionCall = hook.PermissionCall
	// PermissionWord is what the backend says of it.
	PermissionWord = hook.PermissionWord
)

// CheckOutput says what is wrong with an output that is valid JSON: the model is asked again.
type CheckOutput = hook.CheckOutput

// OutputInput is what a CheckOutput receives.
type OutputInput = hook.OutputInput

// ContextSource adds what was looked up to a request.
type ContextSource = hook.ContextSource

// ContextInput is what a ContextSource receives.
type ContextInput = hook.ContextInput
