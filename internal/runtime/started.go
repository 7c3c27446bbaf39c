package runtime

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// MaxStart is the longest input of an execution, in bytes, with what the state machine puts around it: a state has at
// most 256 KiB.
const MaxStart = 260 << 10

// StartedRun is the run that an execution is for, by the input it was started with and its name: {tenant, run} where
// the run was there first; {agent, key, tenant} where an event made the execution make the run, whose id follows from
// them. ok is false for any other input. Whether there is such a run, the journal says.
func StartedRun(name string, input []byte) (tenant, run string, ok bool) {
	var in struct {
		Tenant string `json:"tenant"`
		Run    string `json:"run"`
		Agent  string `json:"agent"`
		Key    string `json:"key"`
	}
	if jsonx.DecodeKnown(input, jsonx.JSONLimits{Bytes: MaxStart}, &in) != nil { // as the execution itself has read it
		return "", "", false
	}
	if in.Tenant == "" {
		in.Tenant = "default"
	}
	if in.Key == "" {
		in.Key = name
	}
	switch {
	case !agent.ValidTenant(in.Tenant):
		return "", "", false
	case in.Run != "":
		return in.Tenant, in.Run, true
	case in.Agent != "":
		return in.Tenant, agent.RunID(in.Tenant, in.Agent, in.Key), true
	default:
		return "", "", false
	}
}
