package mcp

import "reflect"

// What is decoded of a part of a result, and of a tool.
var (
	PartType = reflect.TypeFor[content]()
	ToolType = reflect.TypeFor[definition]()
)
