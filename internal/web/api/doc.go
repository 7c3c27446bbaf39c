// Package api is the HTTP API of runs and approvals, and a client for it (docs/api.md, docs/openapi.yaml). The table of
// routes is in handler.go. The same
// handler serves the Unix socket of a laptop and a deployed function. Every action goes through the use cases of
// package runtime, and every decision through approval.Desk.
//
// Bodies except that of PUT are strict JSON of at most 256 KiB. Unknown keys, repeated keys, trailing text and unknown
// query parameters are refused. Errors are application/problem+json (RFC 9457); their types never change.
package api
