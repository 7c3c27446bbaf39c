// Package mcp has the tools of servers that speak the Model Context Protocol: it is a runtime.Remote over the official
// SDK, for protocol 2026-07-28 and older ones, over streamable HTTP and, where the process can start programs (package
// mcp/program), over standard streams.
//
// A server is not trusted. One invocation has one connection to a server, made when it is first needed, and ends it
// whatever happens; a connection that breaks is replaced by the next use. On each connection the server's tools are
// listed once, and a call is sent only where the tool's definition has the digest that the run is pinned to
// (port.ChangedError). Whatever hangs ends with a deadline, whatever floods with a bound: the constants in bounds.go.
//
// What becomes of a call: a result of the server's is a result, be it an error of the tool's; an answer that says no
// (an error of the protocol, a refusal of HTTP) is an error; an answer that did not come, broke off or cannot be read
// is a port.LostError, since the server may have done what it was told.
package mcp
