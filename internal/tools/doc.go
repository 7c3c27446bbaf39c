// Package tools carries out calls of tools that are elsewhere: HTTP requests (HTTP), functions of AWS Lambda (Lambda)
// and servers that speak the Model Context Protocol (MCP). Each is a runtime.Remote.
package tools
