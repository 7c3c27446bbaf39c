package runtime

import (
	"encoding/json"

	"github.com/countersign/countersign/pkg/agent"
)

// StartedRun is the run that an execution is for, by the input it was started with and its name: {tenant, run} where the run was there
// first; {agent, key, tenant} where an event made the execution make the run, whose id follows from them. ok is false for any
// other input. Whether there is such a run, the journal says.
func StartedRun(name string, input []byte) (tenant, run string, ok bool) {
	var in struct{ Tenant, Run, Agent, Key string }
	if json.Unmarshal(input, &in) != nil {
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
