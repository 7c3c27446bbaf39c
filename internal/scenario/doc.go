// Package scenario runs scenarios. A scenario is one txtar archive with an agent, the scripts of its model and its
// people, and the wanted outcome (docs/scenarios.md).
//
// A simulation runs the deployed state machine and handlers in memory. Models, tools, people and channels are fakes.
// One deterministic scheduler and a virtual clock make every simulation of a scenario leave the same trace.
//
//	s, err := scenario.Load("refund.txtar", data)    // strict: file, line and key of every problem
//	r := s.Run(scenario.Options{})                   // compare the run with want.json
//	c := s.Crash(0)                                  // the same with a crash at every call of a port
//
// Faults (package fault) and interventions disturb a simulation at calls of ports. Invariants are checked in every
// disturbed simulation. The wanted outcome is compared unless a disturbance may change it.
//
// # Under a crash
//
//   - modelCalls, events and seq of want.json are not compared. Retries take time, so use patterns for instants.
//   - The number of executions is exact for a non_idempotent tool and a lower bound for others, which may be repeated.
//   - With `reconcile: false`, people settle unknown outcomes. If only the crash made the outcome unknown, an approver
//     settles it from the effect log, and the request is not compared. The number of executions is then an upper bound,
//     since the crash may have kept the call from its tool. The result comes after those of its round known before.
//   - A crash may lose a model request during which a person acted (`"at": "inference:N"`). The action then precedes
//     the retry of that request. Such a simulation has diverged: it must come to rest and is not compared.
package scenario
