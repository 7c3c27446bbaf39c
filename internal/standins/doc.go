// Package standins stands in, in tests, for what cannot be had there. What a stand-in does not know of its real
// counterpart it refuses by name.
//
//   - AWS, where no emulator is to be had: an HTTP API of API Gateway in front of a function (payload format 2.0, a JWT
//     authorizer), an EventBridge bus with its rules, patterns and input transformers, at least once, Lambda's Runtime
//     API and Invoke, function URLs, and mails of SES.
//   - Bedrock, with replies from a script (NewBedrock).
//   - Slack, as far as an app with buttons in direct messages meets it: chat.postMessage and chat.update, which check
//     tokens, forms and Block Kit's limits, the signed requests that clicks make, and where clicks are answered.
//   - DynamoDB Local, the real engine in a Java process of its own (MainWithDynamoDB).
//   - Programs that npm fetches: the machine's own Chromium over the pages, by playwright-core (tools/browser), and MCP
//     servers of others (tools/mcp).
//
// DynamoDB Local, whose licence forbids passing it on, and npm's programs are development dependencies, never vendored
// and never shipped.
package standins
