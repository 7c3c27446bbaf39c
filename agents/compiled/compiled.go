// Package compiled is the agents of this deployment without their code, as functions/step and functions/api know them. `make compiled`
// writes agents.json, which people read, and agents.bin, which is the same for bootstraps, from the registry of package agents; building a
// function does so first.
package compiled

import (
	_ "embed"

	"github.com/countersign/countersign/pkg/agent/catalog"
)

// packed is a string because those lie with what is read alone: bytes would lie with what is written to, where a bootstrap has less room.
//
//go:embed agents.bin
var packed string

// Agents are the agents of the registry that agents.bin was written from. It panics at start-up where that is broken.
func Agents() *catalog.Catalog { return catalog.Must(packed) }
