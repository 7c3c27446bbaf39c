// Package standins stands in, in tests, for what cannot be had there: services of AWS without an emulator (HTTPAPI,
// JWT, Bus, Lambda, Functions, FunctionURL, Mail), Bedrock (NewBedrock), Slack, and programs that npm fetches:
// DynamoDB Local (MainWithDynamoDB), whose licence forbids passing it on, a browser's driver (tools/browser), MCP
// servers of others and clients of a chat (tools/mcp). These are never vendored and never shipped. What a stand-in
// does not know of its real counterpart it refuses by name.
package standins
