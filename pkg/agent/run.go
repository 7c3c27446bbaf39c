package agent

import core "github.com/countersign/countersign/internal/agent"

// Run is the state of a run, folded from its journal: conversation, open calls, usage, status.
type Run = core.AgentState

// Message is one block of a run's conversation. Message.Seen gives its seenCount: how many inferences it has been part of.
type Message = core.Message

// Role says who speaks. Results of tools are on the user's side.
type Role = core.Role

// The roles.
const (
	RoleUser      = core.RoleUser
	RoleAssistant = core.RoleAssistant
)

// Block is what a message holds: exactly one of the types below.
type Block = core.Block

// The blocks.
type (
	// Text is a text.
	Text = core.Text
	// Media is a picture or a file.
	Media = core.Media
	// Reasoning is what a model thought.
	Reasoning = core.Reasoning
	// ToolUse is a call as the model made it.
	ToolUse = core.ToolUse
	// ToolResult is a result as the model reads it.
	ToolResult = core.ToolResult
)

// RunStatus is the state of a run.
type RunStatus = core.RunStatus

// The states of runs.
const (
	RunRunning = core.RunRunning
	RunWaiting = core.RunWaiting
	RunDone    = core.RunDone
)

// CallState is a tool call as the run knows it.
type CallState = core.Call

// CallStatus is the state of a tool call.
type CallStatus = core.CallStatus

// The states of tool calls. docs/call-states.md draws how they follow each other.
const (
	StatusNew       = core.StatusNew
	StatusRunning   = core.StatusRunning
	StatusSuspended = core.StatusSuspended
	StatusResuming  = core.StatusResuming
	StatusSucceeded = core.StatusSucceeded
	StatusFailed    = core.StatusFailed
	StatusCancelled = core.StatusCancelled
)
