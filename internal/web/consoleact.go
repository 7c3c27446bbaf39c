package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/web/api"
)

// actFields are the fields of the forms that start and change runs and agents.
var actFields = []string{"form", "note", "agent", "message", "input", "at", "tool", "digest", proofField}

// startPage is the view of start.html.
type startPage struct {
	frame
	Agents   []filterOption
	Agent    string
	Detail   show.Text // the agent's model
	Typed    map[string]string
	Notice   *notice
	Curl, Go string
}

func (c *console) newStartPage(r *http.Request) (page startPage, err error) {
	q, err := readQuery(r, "agent")
	if err != nil {
		return page, err
	}
	return c.newStart(r, map[string]string{"agent": q["agent"]}, nil)
}

// newStart returns the form to start a run, with the fields as they were typed.
func (c *console) newStart(r *http.Request, typed map[string]string, n *notice) (page startPage, err error) {
	if c.Act == nil || c.Agents == nil {
		return page, errNoPage
	}
	name := typed["agent"]
	if names := c.Agents(); name == "" && len(names) > 0 {
		name = names[0]
	}
	page = startPage{frame: c.newFrame("Start a run", navRuns), Agents: c.agentOptions(name)[1:], Agent: name,
		Typed: typed, Notice: n}
	if c.Definition != nil {
		if d, ok := c.Definition(name); ok {
			page.Detail = c.Show.Text(strings.TrimSpace(d.Model.Provider + " " + d.Model.ID))
		}
	}
	base := "http://" + r.Host
	if c.Session { // sessions are of an address by https alone
		base = "https://" + r.Host
	}
	body := fmt.Sprintf(`{"agent": %q, "message": "…"}`, name)
	page.Curl = "curl -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n  -d '" +
		body + "' " + base + "/v1/runs"
	page.Go = fmt.Sprintf("c := client.New(%q, authorized)\nrun, err := c.Start(ctx, client.Start{\n\tAgent: %q, "+
		"Message: json.RawMessage(`\"…\"`),\n})", base, name)
	return page, nil
}

// serveForm applies a form that starts or changes something, and leads to what came of it. A form that is refused is
// shown again with the reason.
func (c *console) serveForm(w http.ResponseWriter, r *http.Request) {
	form, err := readAction(w, r)
	notice := &notice{formResult: formResult{Head: "Nothing was changed", Bad: true}}
	status, kind := http.StatusBadRequest, formOf(r.URL.Path)
	var to string
	switch {
	case err != nil:
		notice.Text = c.Show.Text("The form: " + err.Error() + ".")
	case c.checkProof(form) != "":
		status, notice.Text = http.StatusForbidden, c.Show.Text("That you may look does not say that you may decide. Type "+
			"the token, or open the address once more that was printed at the start.")
	case kind == "together":
		page, err := c.approveTogether(r, form)
		c.renderPage(w, r, "together.html", page, err)
		return
	case c.Act == nil:
		c.writePage(w, http.StatusNotFound, c.missing)
		return
	default:
		if to, err = c.applyAction(r.Context(), kind, r.URL.Path, form); err == nil {
			redirect(w, to)
			return
		}
		var p *api.Problem
		var wrong *formError
		switch {
		case errors.As(err, &wrong):
			notice.Text = c.Show.Text(wrong.problem)
		case !errors.As(err, &p) || p.Status >= http.StatusInternalServerError:
			c.writeFailure(w, r, err)
			return
		default:
			status, notice.Text = p.Status, c.Show.Text(p.Detail)
		}
	}
	c.refuseAction(w, r, status, kind, form, notice)
}

// refuseAction shows the page of a form again.
func (c *console) refuseAction(
	w http.ResponseWriter, r *http.Request, status int, kind string, form map[string]string, n *notice,
) {
	var name string
	var view any
	var err error
	path := strings.Split(r.URL.Path, "/")
	plain := r.Clone(r.Context())
	plain.URL.RawQuery = ""
	switch kind {
	case "start":
		name = "start.html"
		view, err = c.newStart(r, form, n)
	case "revoke":
		var page agentPage
		name = "agent.html"
		page, err = c.newAgentPage(plain, path[2])
		page.Notice, view = n, page
	case "together":
		name, view = "together.html", togetherPage{frame: c.newFrame("Approve several", navApprovals),
			Heading: show.Text{{Text: "Approve several"}}, Notice: n}
	default:
		var page runPage
		name = "run.html"
		page, err = c.newRunPage(plain, path[2])
		page.Notice, page.Typed, view = n, form, page
	}
	if err == nil {
		var html []byte
		if html, err = c.pages.render(name, view); err == nil {
			c.writePage(w, status, html)
			return
		}
	}
	c.renderPage(w, r, name, view, err)
}

// applyAction does what a form asks for, and returns the path to go on at.
func (c *console) applyAction(
	ctx context.Context, kind, path string, form map[string]string,
) (to string, err error) {
	of := strings.Split(path, "/")[2:]
	var done api.Accepted
	switch kind {
	case "revoke":
		if err := c.Act.Revoke(ctx, of[0], form["tool"], form["digest"]); err != nil {
			return "", err
		}
		return agentsPath + of[0], nil
	case "cancel":
		done, err = c.Act.Cancel(ctx, of[0], form["note"])
	case "fork":
		at, bad := strconv.ParseInt(form["at"], 10, 64)
		if bad != nil {
			return "", &formError{"want an entry to fork behind"}
		}
		done, err = c.Act.Fork(ctx, of[0], api.Fork{At: &at})
	case "message":
		var m json.RawMessage
		if m, err = newMessage(form["message"]); err == nil {
			done, err = c.Act.Input(ctx, of[0], api.Input{Messages: []json.RawMessage{m}}, "")
		}
	case "continue":
		var before api.Run
		start := api.Start{Continues: of[0]}
		if before, err = c.Read.RunWithoutMessages(ctx, of[0]); err == nil {
			start.Agent = before.Agent
			start.Message, err = newMessage(form["message"])
		}
		if err == nil {
			done, err = c.Act.Start(ctx, start)
		}
	default:
		done, err = c.start(ctx, form)
	}
	return runsPath + done.ID, err
}

// start starts a run by the form of start.html.
func (c *console) start(
	ctx context.Context, form map[string]string,
) (done api.Accepted, err error) {
	s := api.Start{Agent: form["agent"]}
	switch input := strings.TrimSpace(form["input"]); {
	case input == "":
		if s.Message, err = newMessage(form["message"]); err != nil {
			return done, err
		}
	case form["message"] != "":
		return done, &formError{"Want a message or an input, not both."}
	case !json.Valid([]byte(input)):
		return done, &formError{"The input: want JSON."}
	default:
		s.Input = json.RawMessage(input)
	}
	return c.Act.Start(ctx, s)
}

// newMessage returns a message of a text.
func newMessage(text string) (json.RawMessage, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &formError{"Want some words."}
	}
	return json.Marshal(text)
}

// readAction reads a form strictly: only the known fields, each once but form, whose values are joined by spaces.
// People may see its error.
func readAction(w http.ResponseWriter, r *http.Request) (map[string]string, error) {
	wrong := errors.New("want a form of this page")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, wrong
	}
	var tooLarge *http.MaxBytesError
	switch err := r.ParseForm(); {
	case errors.As(err, &tooLarge):
		return nil, fmt.Errorf("want a form of at most %d bytes", maxForm)
	case err != nil:
		return nil, wrong
	}
	got := map[string]string{}
	for name, all := range r.PostForm {
		if !slices.Contains(actFields, name) || len(all) != 1 && name != "form" {
			return nil, wrong
		}
		got[name] = strings.ReplaceAll(strings.Join(all, " "), "\r\n", "\n") // as browsers send line ends
	}
	return got, nil
}
