package cli

import (
	"bytes"
	"html/template"
	"net/http"

	"github.com/countersign/countersign/pkg/agent/api"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// front is the page: what waits for people, and the runs, with links to their JSON. It needs no script and decides nothing.
var front = template.Must(template.New("front").Funcs(template.FuncMap{"line": line, "stamp": stamp}).Parse(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Countersign</title></head>
<body>
<h1>Countersign</h1>
<p>Acting as {{line .As}}. Agents: {{range $i, $a := .Agents}}{{if $i}}, {{end}}{{line $a}}{{else}}none{{end}}.</p>
<h2>Waiting for a decision</h2>
<ul>
{{- range .Approvals.Approvals}}
<li><a href="/v1/approvals/{{.ID}}">{{.ID}}</a> {{range .Tools}}{{line .}} {{end}}of <a href="/v1/runs/{{.Run}}">{{.Run}}</a> ({{line .Agent}}), until {{stamp .ExpiresAt}}</li>
{{- else}}
<li>nothing</li>
{{- end}}
</ul>
{{with .Approvals.Cursor}}<p><a href="/v1/approvals?cursor={{.}}">more</a></p>{{end}}
<h2>Runs</h2>
<ul>
{{- range .Runs.Runs}}
<li><a href="/v1/runs/{{.ID}}">{{.ID}}</a> {{line .Agent}} {{.Status}}{{with .Reason}}, {{.}}{{end}}, {{stamp .UpdatedAt}} (<a href="/v1/runs/{{.ID}}/events">events</a>)</li>
{{- else}}
<li>none</li>
{{- end}}
</ul>
{{with .Runs.Cursor}}<p><a href="/v1/runs?cursor={{.}}">more</a></p>{{end}}
</body>
</html>
`))

// shownFront is what the page shows.
type shownFront struct {
	As        string
	Agents    []string
	Approvals api.ApprovalPage
	Runs      api.RunPage
}

// page answers GET /.
func (w *web) page(out http.ResponseWriter, r *http.Request) {
	c := w.engine.client(w.as)
	defer c.Close()
	shown := shownFront{As: w.as.ID, Agents: w.engine.p.registry.Agents()}
	var err error
	if shown.Approvals, err = c.Approvals(r.Context(), approval.Pending, "", 0); err == nil {
		shown.Runs, err = c.Runs(r.Context(), api.RunQuery{})
	}
	var page bytes.Buffer
	if err == nil {
		err = front.Execute(&page, shown)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	h := out.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = out.Write(page.Bytes()) // the reader has gone
}
