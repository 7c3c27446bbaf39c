package run

import (
	"strconv"
	"strings"
	"time"
)

// entriesPerExecution bounds how many entries one execution may own before it hands over, so that its history stays
// below 10,000 events, of the 25,000 that end an execution (R10). A plain iteration is two entries and twelve events.
// The most that an entry takes is thirteen: Step, its choice, and a wait that ends, where every wake parks the run
// again.
const entriesPerExecution = 750

// longestOwner is how old an execution may be before it hands over, a wait included. Step Functions ends one after a
// year, which nothing in it can catch; the days between are for clocks, retries and pauses of whoever runs it.
const longestOwner = 360 * 24 * time.Hour

// HandsOverAt is when the run's owner is so old that another execution has to go on.
func (s *AgentState) HandsOverAt() time.Time { return s.OwnedAt.Add(longestOwner) }

// HandsOver reports whether the owner has written so much, or is so old as of the newest fact, that another execution
// has to go on.
func (s *AgentState) HandsOver() bool {
	return s.Entries-s.OwnedSince >= entriesPerExecution || !s.head.time.Before(s.HandsOverAt())
}

// TakeOvers is how many of the run's owners ended without having handed over, at least: whoever hands over has written
// its share of entries, but for one that was parked for a year.
func (s *AgentState) TakeOvers() int64 {
	return max(0, s.Generation-s.Entries/entriesPerExecution)
}

// isMintedBy reports whether the core makes this id for this inference.
func isMintedBy(id string, inference int64) bool {
	return strings.HasPrefix(id, "c"+strconv.FormatInt(inference, 10)+"-")
}

// Original is the name of the call's tool in its definition.
func (rc RepliedCall) Original() string {
	if rc.Tool == "" {
		return rc.Name
	}
	return rc.Tool
}

// TextFromSystem is a text of the system's within the conversation, where there are only users and assistants.
func TextFromSystem(text string) string { return "<system-reminder>\n" + text + "\n</system-reminder>" }
