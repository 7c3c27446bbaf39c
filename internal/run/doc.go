// Package run defines a run: its state, the facts that change it, and their stored form.
//
// The package does no I/O and reads no clock, environment or randomness. Time, sequence numbers and ids arrive as data.
// It imports only jsonx of this module and knows no agent definition: a policy decides, and its decision is a fact.
//
//   - AgentState is everything known about one run.
//   - Event is the sealed union of facts. Apply is the only function that changes a run. A forbidden transition is an
//     error, and a fact that is already known changes nothing.
//   - RunTransitions and CallTransitions are the two tables, which Apply enforces and diagrams are drawn from.
//   - Entry is one journal entry. Fold rebuilds a run from its entries, and a snapshot shortens the fold.
//
// docs/protocol.md is the durable contract: who may write what and when. docs/presets.md explains every setting.
package run
