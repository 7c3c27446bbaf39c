package lambdafn

import (
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/runtime"
)

// envWebURL is where functions/web is reached from outside, as https://api.example.com; empty = no link is handed
// out. The functions that tell people read it.
const envWebURL = "COUNTERSIGN_WEB_URL"

// Links returns a function's links, signed by its key ring; nil = it has no key ring.
func Links(p runtime.Ports, getenv func(string) string) (*link.Links, error) {
	ring, err := readRing(getenv)
	if err != nil || ring == nil {
		return nil, err
	}
	base := getenv(envWebURL)
	return &link.Links{
		Table: p.Table, Signer: link.Ring(ring), Clock: p.Clock, IDs: ids.System(p.Clock),
		Base: func() string { return base },
	}, nil
}
