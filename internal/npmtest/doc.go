// Package npmtest runs programs that npm fetches, for tests: a browser over the pages, and MCP servers of others.
// They are development dependencies, never vendored and never shipped.
package npmtest
