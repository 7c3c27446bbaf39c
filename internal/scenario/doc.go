// Package scenario runs scenarios: an agent, what the model and the people will say, and what must come of it, in one txtar archive
// (docs/scenarios.md). A scenario runs in memory through the deployed state machine and the deployed handlers,
// under one deterministic scheduler and virtual time, so that the same scenario always leaves the same trace.
//
//	s, err := scenario.Load("refund.txtar", data)    // strict: file, line and key of everything that is wrong
//	r := s.Run(scenario.Options{})                   // what is not as wanted
//	c := s.Crash(0)                                   // the same with a crash at every call of a port
//
// # Under a crash
//
//   - modelCalls, events and seq of want.json are not compared. Retries take time, so instants are better wanted as patterns.
//   - How often a tool was entered, and a call executed, is exact for a non_idempotent tool and a lower bound for the
//     others, which may be repeated.
//   - A tool with `reconcile: false` leaves it to people to say what became of a call. Where it was the crash that made them be
//     asked, somebody who knows answers, and the request is not compared; how often such a tool was entered is an upper
//     bound, because people may settle a call that a crash kept from being entered at all. The result then comes after those
//     of its round that were known before.
//   - A crash that loses a request to the model during which somebody acted (`"at": "inference:N"`) moves what they said before that
//     inference, which is another story: such a run must come to rest and is not compared further.
package scenario
