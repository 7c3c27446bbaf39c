package lambdafn

import (
	"fmt"

	"github.com/countersign/countersign/internal/aws/kms"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/runtime"
)

// The environment of links: of the functions that tell people, which hand them out, and of functions/web, which is behind them.
const (
	envWebURL  = "COUNTERSIGN_WEB_URL"      // where functions/web is reached from outside, as https://api.example.com; empty = no link is handed out
	envLinkKMS = "COUNTERSIGN_LINK_KMS_KEY" // ARNs of HMAC keys in KMS that sign links in place of the ring, the newest first, with commas between them
)

// Links are a function's links: signed by keys in KMS where the environment names some, else by its ring. Without either there are none: nil.
func Links(p runtime.Ports, getenv func(string) string) (*link.Links, error) {
	signer, err := linkSigner(getenv, p.Clock)
	if err != nil || signer == nil {
		return nil, err
	}
	base := getenv(envWebURL)
	return &link.Links{Table: p.Table, Signer: signer, Clock: p.Clock, IDs: ids.System(p.Clock), Base: func() string { return base }}, nil
}

func linkSigner(getenv func(string) string, clk clock.Clock) (link.Signer, error) {
	arns := getenv(envLinkKMS)
	if arns == "" {
		ring, err := readRing(getenv)
		if err != nil || ring == nil {
			return nil, err
		}
		return link.Ring(ring), nil
	}
	cfg, err := awsConfig(getenv)
	if err != nil {
		return nil, err
	}
	at, err := endpointOf("KMS", kms.Endpoint, cfg, getenv)
	if err != nil {
		return nil, err
	}
	keys, err := kms.New(cfg, at, arns, clk)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envLinkKMS, err)
	}
	return keys, nil
}
