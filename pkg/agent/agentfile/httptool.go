package agentfile

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tools/egress"
)

// httpEntry is what the keys of a tool of kind http say.
type httpEntry struct {
	request                    agent.HTTPTool
	openapi, operation, server string
	any                        bool // one of the keys is there
}

// httpKeys adds the keys of a request. What it gives is to be called once the entry is read: it makes the request of
// what was read. An entry that says nothing of one leaves that of the tool it is laid over.
func (r *reader) httpKeys(readers map[string]read, t *agent.ToolSpec) func(field) {
	var e httpEntry
	for key, take := range r.keysOf(&e.request, map[string]read{
		"allow": nil, "allowHosts": r.texts(&e.request.Allow),
		"openapi": r.text(&e.openapi), "operation": r.text(&e.operation), "server": r.text(&e.server),
	}) {
		readers[key] = func(f field) { e.any = true; take(f) }
	}
	return func(f field) {
		if !e.any && (t.Kind != agent.KindHTTP || t.HTTP != nil) {
			return
		}
		t.HTTP = &e.request
		if t.Kind != agent.KindHTTP { // the check says so
			return
		}
		source := "url" // the key that the URL comes from
		if e.openapi != "" {
			source = "openapi"
		}
		if e.openapi != "" || e.operation != "" {
			r.operation(f, &e, t)
		} else if e.server != "" {
			r.add(join(f.path, "server"), "got a server, want none: only an operation of openapi has one")
		}
		e.request.Method = strings.ToUpper(cmp.Or(e.request.Method, "GET"))
		if _, said := f.member("effect"); !said && (e.request.Method == "GET" || e.request.Method == "HEAD") {
			t.Effect = run.EffectRead
		}
		// Say which hosts no request would be sent to, whatever an operator allows: what resolvers read in ways
		// of their own.
		if u, err := e.request.Request(); err == nil {
			if _, err := egress.ParseURL(u.Origin); err != nil {
				r.add(join(f.path, source), strings.TrimPrefix(err.Error(), "not allowed: "))
			}
		}
		for i, host := range e.request.Allow {
			if err := egress.CheckAllowed(host); err != nil {
				r.add(fmt.Sprintf("%s[%d]", join(f.path, "allowHosts"), i), strings.TrimPrefix(err.Error(), "not allowed: "))
			}
		}
	}
}
