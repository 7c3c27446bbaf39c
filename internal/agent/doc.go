// Package agent is what a run is: its state, the facts that change it, and the pure functions over both.
//
// It does no I/O and reads no clock, environment or randomness; time, sequence numbers and ids arrive as data.
//
//   - AgentState is everything known about one run.
//   - Event is the sealed union of facts. Apply is the only function that changes a run; a forbidden transition is an error,
//     a fact that is already known changes nothing.
//   - Next says who owes the run its next fact. All policy lives there and in small pure functions beside it.
//   - RunArrows and CallArrows are the two transition tables. Apply guards with them and the diagrams are drawn from them.
//   - Entry is one journal entry; Fold rebuilds a run from its entries.
//
// The durable contract (who may write what and when) is docs/protocol.md; the meaning of every knob is docs/semantics.md.
package agent
