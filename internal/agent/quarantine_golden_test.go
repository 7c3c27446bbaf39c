package agent

import "time"

// goldenRestoredRun is quarantined twice and released once, with a snapshot while it is.
func goldenRestoredRun() [][]Event {
	later := worldEpoch.Add(QuarantineExpiry)
	epoch := NextEpoch(0, worldEpoch)
	return [][]Event{
		{RunStarted{Tenant: "default", Run: "r11", Agent: "a", Definition: "d1", Owner: "r11-0", MaxInteractions: 5, Messages: []UserBlock{{Text{"Pay."}}}}},
		{Replied{Inference: 1, Model: "m", Requests: 1, Text: "Whom?"}, InputReceived{Slot: 1, ID: "m1", Blocks: []UserBlock{{Text{"Ana."}}}}},
		{
			Evicted{Total: 1, Summary: "Somebody is to be paid."},
			Quarantined{Why: QuarantineMarked, Owner: "r11-x", Generation: epoch, Copied: worldEpoch.Add(-time.Hour), Expires: later}, Parked{Expires: later},
		},
		{Resumed{Waited: 5}, Released{Slot: 2, Seq: 2, By: "user:op", Note: "the bank has nothing"}},
		{Quarantined{Why: QuarantineAhead, Owner: "r11-x", Generation: epoch, Expires: later}, Parked{Expires: later}},
	}
}
