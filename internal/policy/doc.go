// Package policy decides what a run does next and what its calls may do: pure functions over a definition and the state
// of a run.
//
// Next says who owes the run its next fact. PlanReply judges a model's reply. Decide and the gate apply the rules to a
// call: run it, ask people, refuse it, or give a result. The package also holds grants, quorum, ceilings of delegated
// runs, preconditions, limits and guards.
package policy
