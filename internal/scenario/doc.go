// Package scenario runs scenarios: an agent, what the model and the people will say, and what must come of it, in one txtar archive
// (docs/interfaces.md, section 4). A scenario runs in memory through the deployed state machine and the deployed handlers,
// under one deterministic scheduler and virtual time, so that the same scenario always leaves the same trace.
//
//	s, err := scenario.Load("refund.txtar", data)    // strict: file, line and key of everything that is wrong
//	r := s.Run(scenario.Options{})                   // what is not as wanted
//	c := s.Crash()                                   // the same with a crash at every call of a port
//
// Under a crash three things of `want.json` are not compared: modelCalls, events and seq. What executed, and how often a call
// did, is exact for a non_idempotent tool and a lower bound for the others, which may be repeated. A tool with `reconcile: false`
// leaves it to people to say what became of a call; how often it was entered is then an upper bound, because they may
// settle a call that a crash kept from being entered at all.
package scenario
