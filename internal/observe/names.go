package observe

// Namespace of every metric.
const Namespace = "Countersign"

// Dimension is a dimension of every metric, and the only one of those that alarms watch. Its value is the name of the
// state machine, the last part of the ARN in COUNTERSIGN_STATE_MACHINE, which tells the deployments of an account
// apart.
const Dimension = "StateMachine"

// The metrics that alarms watch (R18). The first two are counted as they happen, the others are what one sweep has
// found.
const (
	RunsRepaired      = "RunsRepaired"      // count: runs that a sweep or an execution's end has repaired
	SweepFailures     = "SweepFailures"     // count: runs that could not be looked at or repaired
	OutcomesUnknown   = "OutcomesUnknown"   // count: calls of which nobody knows whether they were carried out
	WaitsOpen         = "WaitsOpen"         // count: open waits for people and services
	OldestWaitSeconds = "OldestWaitSeconds" // seconds: since when the oldest of them is open
)

// More that alarms watch. They are counted as they happen.
const (
	Misconfigured = "Misconfigured" // count: parts of a function that it began without, as their configuration is wrong
)

// RequestsTold counts what sweeps have done about requests to people, by Did: messages notified, reminded and updated,
// and requests escalated. No alarm watches it.
const RequestsTold = "RequestsTold"

// AlarmMetrics lists those that alarms watch.
func AlarmMetrics() []string {
	return []string{
		RunsRepaired, SweepFailures, OutcomesUnknown, WaitsOpen, OldestWaitSeconds, Misconfigured,
	}
}
