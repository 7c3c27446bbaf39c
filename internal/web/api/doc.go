// Package api is the HTTP API of runs and approvals, and a client for it (docs/api.md, docs/openapi.yaml). The same
// handler serves the Unix socket of a laptop and a deployed function. Every action goes through the use cases of
// package runtime, and every decision through approval.Desk.
//
// Paths, all under /v1:
//
//	POST /runs                      start a run
//	GET  /runs                      list runs (status, agent, cursor, limit)
//	GET  /runs/{id}                 one run (messages=0 leaves messages and calls out)
//	GET  /runs/{id}/messages        all messages, in pages
//	GET  /runs/{id}/calls           all calls, in pages
//	GET  /runs/{id}/events          what happened (after, limit); as a stream with Accept: text/event-stream
//	POST /runs/{id}/fork            branch it off at one of its entries
//	GET  /runs/{id}/replay          the journal folded again, offline, and any difference
//	POST /runs/{id}/input           messages, decisions, answers
//	POST /runs/{id}/cancel          end it
//	POST /blobs                     permit the upload of a file
//	PUT  /blobs/{sha256}            the upload itself, on a laptop; elsewhere it goes to the store
//	GET  /approvals                 list requests to people (status, cursor, limit)
//	GET  /approvals/{id}            one request
//	POST /approvals/{id}/decision   approve, deny or edit; ask or reply, which decide nothing
//	GET  /grants                    list standing grants (agent, cursor, limit)
//	DELETE /grants/{agent}/{tool}   revoke those of a tool (digest)
//
// Bodies except that of PUT are strict JSON of at most 256 KiB. Unknown keys, repeated keys, trailing text and unknown
// query parameters are refused. Errors are application/problem+json (RFC 9457); their types never change.
package api
