package incident

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/pkg/agent"
)

// Estate is the services that the agent looks after. What is known of them is a file of this folder; what has been
// rolled back is in the ledger, and decides which version runs. Put clients of your own metrics, logs and deployments
// in its place. Safe for concurrent use.
type Estate struct {
	services []service
	ledger   ledger.Ledger
}

type service struct {
	Name    string                        `json:"service"`
	Deploys []deploy                      `json:"deploys"` // oldest first
	Metrics map[string]map[string]float64 `json:"metrics"` // version -> metric -> value while it ran
	Logs    []logLine                     `json:"logs"`    // oldest first
}

type deploy struct {
	Version string `json:"version"`
	At      string `json:"at"`
	By      string `json:"by"`
	Change  string `json:"change"`
}

type logLine struct {
	Version string `json:"version"`
	Level   string `json:"level"`
	Text    string `json:"text"`
}

// Rollback is a service put back to a version that ran before.
type Rollback struct {
	Service string `json:"service"`
	From    string `json:"from"`
	To      string `json:"to"`
	Key     string `json:"key"` // the call that did it
}

//go:embed estate.json
var known []byte

// Open is the estate with its ledger.
func Open(l ledger.Ledger) (Estate, error) {
	e := Estate{ledger: l}
	if err := json.Unmarshal(known, &e.services); err != nil {
		return Estate{}, fmt.Errorf("read estate.json: %w", err)
	}
	return e, nil
}

func (e Estate) find(name string) (service, error) {
	i := slices.IndexFunc(e.services, func(s service) bool { return s.Name == name })
	if i < 0 {
		return service{}, agent.Refuse("There is no service %s.", name)
	}
	return e.services[i], nil
}

// running is the version that runs: the newest one deployed, unless that was rolled back.
func (e Estate) running(s service) (string, error) {
	version := s.Deploys[len(s.Deploys)-1].Version
	for {
		var r Rollback
		found, err := e.ledger.Find(rollbackFrom(s.Name, version), &r)
		if err != nil || !found {
			return version, err
		}
		version = r.To
	}
}

// rollBack puts a service back from the version that runs to one that was deployed before it. That happens once for
// each version, so two who want it at the same time do not both do it.
func (e Estate) rollBack(name, to, key string) (Rollback, error) {
	s, err := e.find(name)
	if err != nil {
		return Rollback{}, err
	}
	if done, found, err := e.rolledBack(name, key); err != nil || found {
		return done, err
	}
	from, err := e.running(s)
	if err != nil {
		return Rollback{}, err
	}
	if !s.before(to, from) {
		return Rollback{}, agent.Refuse("%s runs %s, and %s is no version from before it.", name, from, to)
	}
	r := Rollback{Service: name, From: from, To: to, Key: key}
	kept, err := e.ledger.Keep(rollbackFrom(name, from), r)
	if err == nil && !kept {
		err = agent.Refuse("Somebody else has just rolled %s back from %s.", name, from)
	}
	return r, err
}

// rolledBack finds the rollback that a call has made.
func (e Estate) rolledBack(name, key string) (r Rollback, found bool, err error) {
	s, err := e.find(name)
	if err != nil { // then no call has done anything to it
		return Rollback{}, false, nil
	}
	for _, d := range s.Deploys {
		if found, err := e.ledger.Find(rollbackFrom(name, d.Version), &r); err != nil || found && r.Key == key {
			return r, found, err
		}
	}
	return Rollback{}, false, nil
}

func (s service) before(version, other string) bool {
	at := func(v string) int { return slices.IndexFunc(s.Deploys, func(d deploy) bool { return d.Version == v }) }
	return at(version) >= 0 && cmp.Less(at(version), at(other))
}

func rollbackFrom(service, version string) string { return service + " " + version }
