package lambdafn

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/audit"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/gateway"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/kms"
	"github.com/countersign/countersign/pkg/agent/link"
	"github.com/countersign/countersign/pkg/agent/person"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/tracing"
	"github.com/countersign/countersign/pkg/agent/web"
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

// Pages are what functions/web is made of beside its ports. All fields but those that say so are required.
type Pages struct {
	Links  *link.Links
	People person.Directory
	Audit  audit.Recorder                                          // nil = nothing is recorded
	Trace  *tracing.Tracer                                         // nil = decisions are not traced
	Log    *slog.Logger                                            // nil = nothing is logged
	More   func(d *approval.Desk) (map[string]http.Handler, error) // other paths that answer without the gateway's authorizer, by pattern of http.ServeMux; nil = none
}

// Web is the main of functions/web: the pages that people decide on, and whatever else says by itself who asks. It serves until the process is ended.
// Valid checks the arguments that people edit; schema.Validate does.
func Web(valid agent.Validator) {
	listen(func(getenv func(string) string) (Invoke, error) { return startWeb(valid, getenv) })
}

func startWeb(valid agent.Validator, getenv func(string) string) (Invoke, error) {
	watch, err := observe(getenv, os.Stdout, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := connect(getenv, nil, nil)
	if err != nil {
		return nil, err
	}
	ports.Valid = valid
	links, err := Links(ports, getenv)
	switch {
	case err != nil:
		return nil, err
	case links == nil:
		return nil, fmt.Errorf("%s: want a ring of keys, or %s, got neither", envKeyRing, envLinkKMS)
	}
	people, err := readDirectory(getenv)
	if err != nil {
		return nil, err
	}
	serve, err := NewWeb(watch.Ports(ports), Pages{Links: links, People: people, Trace: watch.Trace, Log: newLog()})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		defer watch.flush()
		return serve(ctx, payload)
	}, nil
}

// NewWeb serves the pages to the events of a gateway. It uses no model and no tool, and needs neither among its ports; without Valid it panics.
func NewWeb(p runtime.Ports, w Pages) (Invoke, error) {
	if p.Valid == nil {
		panic("lambdafn.NewWeb: want a port that checks arguments, got none")
	}
	definitions := runtime.PinnedDefinitions(p.Blobs)
	waits := &runtime.Waits{Ports: p}
	desk := &approval.Desk{
		Table: p.Table, Journal: p.Journal, Clock: p.Clock, Definitions: definitions, Valid: p.Valid, Wake: waits.Wake, Decided: w.Trace.Decided(p.Journal),
		Duties: person.Duties{Table: p.Table, Directory: w.People}.ActsFor,
	}
	mux := http.NewServeMux()
	mux.Handle("/", w.Handler(p, desk, definitions))
	if w.More != nil {
		more, err := w.More(desk)
		if err != nil {
			return nil, err
		}
		for pattern, h := range more {
			mux.Handle(pattern, h)
		}
	}
	serve := (&gateway.Gateway{Handler: mux, Log: w.Log}).Serve
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := inTime(ctx, p.Clock)
		defer cancel()
		return serve(ctx, payload)
	}, nil
}

// Handler serves the pages over a desk, on a laptop as in a function.
func (w Pages) Handler(p runtime.Ports, desk *approval.Desk, definitions func(ctx context.Context, tenant, digest string) (*agent.Definition, error)) http.Handler {
	pages := &web.Pages{
		Links: w.Links, Desk: desk, People: w.People, Show: web.Shown(p.Journal, definitions), Clock: p.Clock, Audit: w.Audit, Log: w.Log,
		Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
			return approval.Get(ctx, p.Table, tenant, id)
		},
		May: mayDecide(desk),
		Remark: func(ctx context.Context, r web.Remark) error {
			say := desk.Ask
			if a, err := approval.Get(ctx, p.Table, r.Tenant, r.ID); err == nil && slices.Contains(a.Requesters, r.By.ID) {
				say = desk.Reply
			}
			_, err := say(ctx, approval.Word{Tenant: r.Tenant, ID: r.ID, Text: r.Text, By: r.By, Via: r.Via})
			return err
		},
	}
	return pages.Handler()
}

// mayDecide says what a page offers: what somebody may do themself, or for those who have let them decide meanwhile.
func mayDecide(desk *approval.Desk) func(ctx context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
	return func(ctx context.Context, a approval.Approval, by agent.Principal) (approve, deny bool, err error) {
		now := desk.Clock.Now()
		all, err := desk.Duties(ctx, a.Tenant, by, now)
		if err != nil {
			return false, false, err
		}
		for _, p := range append([]agent.Principal{by}, all...) {
			deny = deny || a.MayDecide(p, now)
		}
		return deny && (!a.FourEyes || !slices.Contains(a.Requesters, by.ID)), deny, nil
	}
}
