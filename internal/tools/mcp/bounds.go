package mcp

import "time"

// What a server may send. Sizes are in bytes.
const (
	maxTools       = 256
	maxDefinition  = 64 << 10  // of one tool, as the server sent it
	maxDefinitions = 512 << 10 // of all tools of a server
	maxPages       = 64        // of a list
	maxCursor      = 16 << 10  // of what asks for the next page
	maxVersion     = 64        // of a protocol's
	maxLeft        = 64        // tools that are named as left out; the others are counted
	maxDescription = 8 << 10   // of a tool's description, as the model reads it; the rest is cut
	maxTitle       = 200       // characters of a title

	maxMessage = 16 << 20       // of one message
	maxBody    = 2 * maxMessage // of one answer over HTTP: a stream of messages
	maxRefusal = 64 << 10       // of an answer over HTTP that says no
	maxUnasked = 1000           // messages on one connection that answer nothing, such as notifications
	maxIdle    = 4 << 20        // of those messages

	maxText  = 8 << 20 // of a result's text; the runtime shortens what is long
	maxParts = 1000    // of a result's content

	maxAsked = 16       // questions of one result
	maxState = 16 << 10 // of the state that a server wants back with the answers
)

// How long things take.
const (
	defaultTimeout = 20 * time.Second // to connect and to list
	closeGrace     = 2 * time.Second  // to say goodbye
)
