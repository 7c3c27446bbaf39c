package cli

import (
	"cmp"
	"net/http"

	webfront "github.com/countersign/countersign/pkg/agent/front"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/lambdafn"
	"github.com/countersign/countersign/pkg/agent/link"
)

// links are those of a laptop: signed by the ring in HOME, at dev's own address, or where COUNTERSIGN_WEB_URL says that it is reached.
func (e *engine) links() *link.Links {
	return &link.Links{
		Table: e.backend.Table, Signer: link.Ring(e.ring.get), Clock: e.p.clock, IDs: ids.System(e.p.clock),
		Base: func() string {
			var own string
			if url := e.url.Load(); url != nil {
				own = *url
			}
			return cmp.Or(e.p.getenv("COUNTERSIGN_WEB_URL"), own)
		},
	}
}

// pages are those of requests, as functions/web serves them. A request that acts resumes the machine first, as the API's do.
func (e *engine) pages() http.Handler {
	pages := webfront.Requests(lambdafn.Behind{
		Ports: e.home.Ports, Desk: e.home.Desk, Definitions: e.home.Definitions, Links: e.links(), People: e.home.People, Getenv: e.p.getenv,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if err := e.ready(r.Context()); err != nil {
				e.p.trouble("page", err)
				http.Error(w, "the store could not be resumed", http.StatusServiceUnavailable)
				return
			}
		}
		pages.ServeHTTP(w, r)
	})
}
