package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// actFields are the fields of the forms that start and change runs and agents.
var actFields = []string{
	"form", "note", "agent", "message", "input", "model", "at", "tool", "digest", "chat", "once", proofField,
}

type startPage struct {
	frame
	Agents   []filterOption
	Agent    string
	Detail   string  // the agent's model
	Fields   []field // of the agent's input; nil = none is made of its schema
	Typed    map[string]string
	Notice   *formResult
	Curl, Go string
	Broken   []AgentProblem // what is wrong with the agent's file; nil = it can be loaded

	TakesInput bool // the agent takes an input that fits a schema, and no message
}

// newStartPage returns the form to start a run, with the fields as they were typed; nil = nothing was.
func (c *console) newStartPage(r *http.Request, typed map[string]string, n *formResult) (page startPage, err error) {
	q, err := readQuery(r, "agent")
	if err != nil {
		return page, errNoPage
	}
	if typed == nil {
		typed = q
	}
	name := cmp.Or(slices.Concat([]string{typed["agent"]}, c.Agents(), c.agentNames())...)
	page = startPage{frame: c.newFrame("Start a run", navRuns), Agents: c.agentOptions(name)[1:], Agent: name,
		Typed: typed, Notice: n, Broken: c.Broken()[name]}
	if d, ok := c.Definition(name); ok {
		page.Detail, page.TakesInput = modelName(d.Model), d.Input.Schema != nil
		page.Fields = newFields(d.Input.Schema, nil, typed)
	}
	base := "http://" + r.Host
	if c.Session { // sessions are of an address by https alone
		base = "https://" + r.Host
	}
	body, value := "message", `"…"`
	if page.TakesInput {
		body, value = "input", "{…}"
	}
	page.Curl = fmt.Sprintf("curl -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n"+
		`  -d '{"agent": %s, %q: %s}' %s/v1/runs`,
		strings.ReplaceAll(strconv.Quote(name), "'", `\u0027`), body, value, base) // the name may be a stranger's link's
	page.Go = fmt.Sprintf("c := client.New(%q, authorized)\nrun, err := c.Start(ctx, client.Start{\n\tAgent: %q, "+
		"%s: json.RawMessage(`%s`),\n})", base, name, strings.ToUpper(body[:1])+body[1:], value)
	return page, nil
}

// serveForm applies a form that starts or changes something, and leads to what came of it. A form that is refused is
// shown again with the reason.
func (c *console) serveForm(w http.ResponseWriter, r *http.Request) {
	form, files, err := parseForm(r, actFields, true)
	kind := formOf(r.URL.Path)
	refuse := func(status int, text string) {
		c.refuseAction(w, r, status, kind, form, &formResult{Head: "Nothing was changed", Text: text, Bad: true})
	}
	if err != nil {
		refuse(http.StatusBadRequest, "The form: "+err.Error()+".")
		return
	}
	if problem := c.checkProof(form); problem != "" {
		refuse(http.StatusForbidden, problem)
		return
	}
	if kind == "together" {
		page, err := c.approveTogether(r, form)
		c.renderPage(w, r, http.StatusOK, "together.html", page, err)
		return
	}
	to, err := c.applyAction(r.Context(), kind, r.URL.Path, form, files)
	var p *Problem
	var wrong *formError
	switch {
	case err == nil:
		redirect(w, pagePolicy, to)
	case errors.As(err, &wrong):
		refuse(http.StatusBadRequest, wrong.problem)
	case errors.As(err, &p) && p.Status < http.StatusInternalServerError:
		refuse(p.Status, p.Detail)
	default:
		c.writeFailure(w, r, err)
	}
}

// refuseAction shows the page of a form again.
func (c *console) refuseAction(
	w http.ResponseWriter, r *http.Request, status int, kind string, form map[string]string, n *formResult,
) {
	var name string
	var view any
	var err error
	at := strings.Split(r.URL.Path, "/")
	plain := r.Clone(r.Context())
	plain.URL.RawQuery = ""
	switch kind {
	case "start":
		name = "start.html"
		view, err = c.newStartPage(plain, form, n)
	case "revoke":
		var page agentPage
		name = "agent.html"
		page, err = c.newAgentPage(plain, at[2])
		page.Notice = n
		view = page
	case "together":
		name, view = "together.html", togetherPage{frame: c.newFrame("Approve several", navApprovals),
			Heading: "Approve several", Notice: n}
	default:
		var page runPage
		if name = "run.html"; form["chat"] != "" {
			name = "chat.html"
			page, err = c.newChatPage(plain, at[2])
		} else {
			page, err = c.newRunPage(plain, at[2])
		}
		page.Notice, page.Typed = n, form
		view = page
	}
	c.renderPage(w, r, status, name, view, err)
}

// applyAction does what a form asks for, and returns the path to go on at.
func (c *console) applyAction(
	ctx context.Context, kind, at string, form map[string]string, files []attachment,
) (to string, err error) {
	of := strings.Split(at, "/")[2:]
	var done Accepted
	switch kind {
	case "revoke":
		if err := c.Act.Revoke(ctx, of[0], form["tool"], form["digest"]); err != nil {
			return "", err
		}
		return agentsPath + of[0], nil
	case "cancel":
		done, err = c.Act.Cancel(ctx, of[0], form["note"])
	case "fork":
		entry, bad := strconv.ParseInt(form["at"], 10, 64)
		if bad != nil {
			return "", &formError{"want an entry to fork behind"}
		}
		done, err = c.Act.Fork(ctx, of[0], Fork{At: &entry})
	case "message":
		var m json.RawMessage
		if m, err = c.newMessage(ctx, form["message"], files); err == nil {
			done, err = c.Act.Input(ctx, of[0], Input{Messages: []json.RawMessage{m}}, "")
		}
	case "continue":
		var before Run
		start := Start{Continues: of[0]}
		if before, err = c.Read.RunWithoutMessages(ctx, of[0]); err == nil {
			start.Agent = before.Agent
			start.Message, err = c.newMessage(ctx, form["message"], files)
		}
		if err == nil {
			err = c.setModel(&start, form)
		}
		if err == nil {
			start.Key = startKey(form, files)
			done, err = c.Act.Start(ctx, start)
		}
	default:
		done, err = c.start(ctx, form, files)
	}
	to = runsPath + done.ID
	if form["chat"] != "" {
		to = chatPath + "/" + done.ID
	}
	if form["model"] != "" { // offered again for what continues the run
		to += "?" + url.Values{"model": {form["model"]}}.Encode()
	}
	return to, err
}

// setModel gives a start the model that a form names, if it names one.
func (c *console) setModel(s *Start, form map[string]string) (err error) {
	model := strings.TrimSpace(form["model"])
	if model == "" || c.WithModel == nil {
		return nil
	}
	if s.Definition, err = c.WithModel(s.Agent, model); err != nil {
		return &formError{"The model: " + err.Error()}
	}
	return nil
}

// start starts a run by the form of start.html.
func (c *console) start(
	ctx context.Context, form map[string]string, files []attachment,
) (done Accepted, err error) {
	s := Start{Agent: form["agent"]}
	var fields []field
	takesInput := false
	if d, ok := c.Definition(s.Agent); ok {
		fields, takesInput = newFields(d.Input.Schema, nil, nil), d.Input.Schema != nil
	}
	if err = c.setModel(&s, form); err != nil {
		return done, err
	}
	isMessage := form["message"] != "" || len(files) > 0
	switch input := strings.TrimSpace(form["input"]); {
	case input == "" && fields != nil && !isMessage:
		s.Input, err = readFields(fields, form)
	case input == "" && (isMessage || !takesInput):
		s.Message, err = c.newMessage(ctx, form["message"], files)
	case isMessage:
		err = &formError{"Want a message or an input, not both."}
	case isFilledIn(fields, form):
		err = &formError{"Want the fields or an input as JSON, not both."}
	case !json.Valid([]byte(input)):
		err = &formError{"The input: want JSON."}
	default:
		s.Input = json.RawMessage(input)
	}
	if err != nil {
		return done, err
	}
	s.Key = startKey(form, files)
	return c.Act.Start(ctx, s)
}

// startKey returns the idempotency key of a form: a form sent twice starts one run, and one that was changed in between
// starts another. It is empty for a form without the page's value.
func startKey(form map[string]string, files []attachment) string {
	if form["once"] == "" {
		return ""
	}
	sent := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(form)) {
		fmt.Fprintf(sent, "%q=%q\n", name, form[name])
	}
	for _, f := range files {
		fmt.Fprintf(sent, "%q %q %x\n", f.name, f.mediaType, sha256.Sum256(f.data))
	}
	return hex.EncodeToString(sent.Sum(nil))
}

// attachment is a file of a form.
type attachment struct {
	name, mediaType string
	data            []byte
}

// newMessage returns a message of a text and files. A file that is too large for a message is uploaded first.
func (c *console) newMessage(ctx context.Context, text string, files []attachment) (json.RawMessage, error) {
	if len(files) == 0 {
		if strings.TrimSpace(text) == "" {
			return nil, &formError{"Want some words."}
		}
		return json.Marshal(text)
	}
	var blocks []map[string]string
	for _, f := range files {
		block := map[string]string{"type": "media", "name": f.name, "mediaType": f.mediaType}
		if len(f.data) <= MaxInline {
			block["data"] = base64.StdEncoding.EncodeToString(f.data)
		} else {
			sum := sha256.Sum256(f.data)
			b := Blob{MediaType: f.mediaType, Bytes: int64(len(f.data)), SHA256: hex.EncodeToString(sum[:])}
			open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(f.data)), nil }
			var err error
			if block["blob"], err = c.Act.Upload(ctx, b, open); err != nil {
				return nil, err
			}
		}
		blocks = append(blocks, block)
	}
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, map[string]string{"type": "text", "text": text})
	}
	return json.Marshal(blocks)
}

// maxAttached is how many bytes the files of a form may have together. A gateway and a function take 6 MB, as base64.
const maxAttached = 4 << 20

// parseForm reads a form strictly: known fields, each once but form beside files, whose values are joined by spaces,
// those of arguments, and files if it may have them. People may see its error.
func parseForm(r *http.Request, known []string, withFiles bool) (map[string]string, []attachment, error) {
	wrong := errors.New("want a form of this page")
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	limit, parse := int64(maxForm), r.ParseForm
	if withFiles && kind == "multipart/form-data" {
		limit = maxForm + maxAttached
		parse = func() error { return r.ParseMultipartForm(limit) }
	} else if kind != "application/x-www-form-urlencoded" {
		err = wrong
	}
	if err != nil {
		return nil, nil, wrong
	}
	r.Body = http.MaxBytesReader(nil, r.Body, limit)
	var tooLarge *http.MaxBytesError
	switch err := parse(); {
	case errors.As(err, &tooLarge):
		return nil, nil, fmt.Errorf("want at most %d bytes; larger files go by the command line or the API", limit)
	case err != nil:
		return nil, nil, wrong
	}
	got := map[string]string{}
	for name, all := range r.PostForm {
		if kind == "multipart/form-data" && name == "file" && strings.Join(all, "") == "" { // the field was left empty
			continue
		}
		member := strings.HasPrefix(name, fieldPrefix) && len(r.PostForm) <= len(known)+maxMembers
		if !member && !slices.Contains(known, name) || len(all) != 1 && (!withFiles || name != "form") {
			return nil, nil, wrong
		}
		got[name] = strings.ReplaceAll(strings.Join(all, " "), "\r\n", "\n") // as browsers send line ends
	}
	var files []attachment
	if r.MultipartForm == nil {
		return got, nil, nil
	}
	for name, sent := range r.MultipartForm.File {
		for _, header := range sent {
			if name != "file" {
				return nil, nil, wrong
			}
			f, err := readAttachment(header)
			if err != nil {
				return nil, nil, err
			}
			files = append(files, f)
		}
	}
	return got, files, nil
}

// readAttachment reads a file of a form. Its type is that of its name, else what its content looks like.
func readAttachment(header *multipart.FileHeader) (attachment, error) {
	in, err := header.Open()
	if err != nil {
		return attachment{}, fmt.Errorf("the file %s cannot be read", header.Filename)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil || len(data) == 0 {
		return attachment{}, fmt.Errorf("the file %s is empty or cannot be read", header.Filename)
	}
	kind, _, _ := strings.Cut(cmp.Or(mime.TypeByExtension(path.Ext(header.Filename)), http.DetectContentType(data)), ";")
	return attachment{header.Filename, kind, data}, nil
}
