// Package compiled is the agents of this deployment without their code, as functions/step and functions/api know them. `make compiled`
// writes agents.json from the registry of package agents; building a function does so first.
package compiled

import (
	_ "embed"

	"github.com/countersign/countersign/pkg/agent/catalog"
)

//go:embed agents.json
var text []byte

// Agents are the agents of the registry that agents.json was written from. It panics at start-up where that is broken.
func Agents() *catalog.Catalog { return catalog.Must(text) }
