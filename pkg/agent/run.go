package agent

import (
	"github.com/countersign/countersign/internal/run"
)

// Run is the state of a run, folded from its journal: conversation, open calls, usage, status.
type Run = run.AgentState

// Message is one block of a run's conversation. Message.Seen gives its seenCount: how many inferences it has been part
// of.
type Message = run.Message

// Role says who speaks. Results of tools are on the user's side.
type Role = run.Role

// The roles.
const (
	RoleUser      = run.RoleUser
	RoleAssistant = run.RoleAssistant
)

// Block is what a message holds: exactly one of the types below.
type Block = run.Block

// The blocks.
type (
	// Text is a text.
	Text = run.Text
	// Media is a picture or a file.
	Media = run.Media
	// Reasoning is what a model thought.
	Reasoning = run.Reasoning
	// ToolUse is a call as the model made it.
	ToolUse = run.ToolUse
	// ToolResult is a result as the model reads it.
	ToolResult = run.ToolResult
)

// RunStatus is the state of a run.
type RunStatus = run.RunStatus

// The states of runs.
const (
	RunRunning = run.RunRunning
	RunWaiting = run.RunWaiting
	RunDone    = run.RunDone
)

// CallState is a tool call as the run knows it.
type CallState = run.Call

// CallStatus is the state of a tool call.
type CallStatus = run.CallStatus

// The states of tool calls. `countersign validate --graph` draws how they follow each other.
const (
	StatusNew       = run.StatusNew
	StatusRunning   = run.StatusRunning
	StatusSuspended = run.StatusSuspended
	StatusResuming  = run.StatusResuming
	StatusSucceeded = run.StatusSucceeded
	StatusFailed    = run.StatusFailed
	StatusCancelled = run.StatusCancelled
)
