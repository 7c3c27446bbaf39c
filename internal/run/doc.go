// Package run is what a run is: its state, the facts that change it, and their stored form.
//
// It does no I/O and reads no clock, environment or randomness; time, sequence numbers and ids arrive as data. It
// imports nothing of ours but jsonx and knows no agent definition: a policy decides, and its decision is a fact.
//
//   - AgentState is everything known about one run.
//   - Event is the sealed union of facts. Apply is the only function that changes a run; a forbidden transition is an
//     error, a fact that is already known changes nothing.
//   - RunArrows and CallArrows are the two transition tables. Apply guards with them; diagrams are drawn from them.
//   - Entry is one journal entry; Fold rebuilds a run from its entries, and a snapshot shortens the fold.
//
// The durable contract (who may write what and when) is docs/protocol.md, the meaning of every setting docs/presets.md.
package run
