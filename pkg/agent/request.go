package agent

import (
	"crypto/sha256"
	"encoding/hex"
)

// BuildRequest is what the model is asked for action a, which Next gave for s. systemDigest is the system prompt's digest,
// empty where the newest inference had the same.
func BuildRequest(d *Definition, s *AgentState, a Action) (r Request, systemDigest string, err error) {
	system, err := RenderSystem(*d, systemData(s))
	if err != nil {
		return Request{}, "", err
	}
	sum := sha256.Sum256([]byte(system))
	if systemDigest = hex.EncodeToString(sum[:]); systemDigest == s.System {
		systemDigest = ""
	}
	return Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Inferences + 1, Model: d.Model, System: system,
		Messages: s.Messages.All(), Inferences: s.Inferences, Tools: d.Tools, Lifecycle: a.Lifecycle,
		Interactions: s.Interactions, Exhausted: a.Exhausted,
	}, systemDigest, nil
}

// systemData is the same at every inference: the text is built once, so it shows the quota as it is at the start.
func systemData(s *AgentState) SystemData {
	return SystemData{
		Date: s.StartedAt.UTC().Format("2006-01-02"), Run: s.Run, Input: s.Input,
		Interactions: Interactions{Max: s.Interactions.Max},
	}
}
