package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// toolScript is a tool that gives what its file says.
type toolScript struct {
	spec        agent.ToolSpec
	results     []result // in order of execution, the last one repeating; none = it must not be entered
	reconciles  bool
	resultsLine int // in the archive, of its results
}

// result is what one execution gives.
type result struct {
	data    agent.ToolResultData
	sleep   time.Duration
	input   json.RawMessage // the arguments it must be entered with; nil = any
	resume  json.RawMessage // the answer to its own question that it must be entered with; null = none, nil = any
	state   json.RawMessage // the view of the run's state it must be entered with; nil = any
	failure error           // it could not be carried out; nil = it could
}

// resultForm is a result as it is written.
type resultForm struct {
	Text    *string         `json:"text"`
	JSON    json.RawMessage `json:"json"`
	Error   *string         `json:"error"`
	Fails   *string         `json:"fails"`
	Media   *run.Media      `json:"media"`
	Sleep   string          `json:"sleep"`
	Input   json.RawMessage `json:"input"`
	Suspend *run.Ticket     `json:"suspend"`
	Resume  json.RawMessage `json:"resume"`
	State   json.RawMessage `json:"state"`
	Patch   []patchForm     `json:"patch"`
}

// patchForm is a change of the run's state as it is written: without a value, the member is taken out.
type patchForm struct {
	Path  *string         `json:"path"`
	Value json.RawMessage `json:"value"`
}

func loadToolScript(archive string, t agentfile.Tool, ps *problems) toolScript {
	c := toolScript{spec: t.Spec, reconciles: true, resultsLine: t.Line}
	if v, ok := t.Extra["reconcile"]; ok {
		if json.Unmarshal(v.JSON, &c.reconciles) != nil || isNull(v.JSON) {
			ps.add(agentfile.Problem{File: archive, Line: v.Line, Key: v.Key, Text: "want true or false"})
		}
	}
	v, ok := t.Extra["results"]
	if !ok {
		return c
	}
	if t.Spec.AnsweredLater() {
		ps.add(agentfile.Problem{File: archive, Line: v.Line, Key: v.Key, Text: "does not go with " + answeredLaterKind(t.Spec) + ": people answer"})
	}
	c.resultsLine = v.Line
	if len(v.Items) == 0 {
		ps.add(agentfile.Problem{File: archive, Line: v.Line, Key: v.Key, Text: "want a list of one or more"})
	}
	for _, item := range v.Items {
		r, p := parseResult(item.JSON)
		if p.Text != "" {
			ps.add(agentfile.Problem{File: archive, Line: item.Line, Key: joinPath(item.Key, p.Key), Text: p.Text})
		}
		c.results = append(c.results, r)
	}
	return c
}

// answeredLaterKind names what makes a tool one that is answered later.
func answeredLaterKind(t agent.ToolSpec) string {
	if t.Kind == agent.KindLambda {
		return "async"
	}
	return "kind " + string(t.Kind)
}

func joinPath(path, key string) string {
	if key == "" {
		return path
	}
	return path + "." + key
}

func parseResult(raw json.RawMessage) (result, agentfile.Problem) {
	var f resultForm
	if err := (section{}).decode(raw, 0, &f); err != nil {
		p, _ := err.(agentfile.Problem) //nolint:errorlint // decode makes nothing else
		return result{}, agentfile.Problem{Key: p.Key, Text: p.Text}
	}
	if f.Suspend != nil {
		if _, err := policy.Checked(*f.Suspend); err != nil {
			return result{}, agentfile.Problem{Key: "suspend", Text: err.Error()}
		}
	}
	r := result{input: f.Input, resume: f.Resume, state: f.State}
	if f.Fails != nil {
		r.failure = errors.New(*f.Fails)
	}
	if f.Sleep != "" {
		var err error
		if r.sleep, err = agentfile.ParseDuration(f.Sleep); err != nil {
			return result{}, agentfile.Problem{Key: "sleep", Text: err.Error()}
		}
	}
	var problem string
	if r.data, problem = f.toolResult(); problem != "" {
		return r, agentfile.Problem{Text: problem}
	}
	if r.data.Patch, problem = f.patches(); problem != "" {
		return r, agentfile.Problem{Key: "patch", Text: problem}
	}
	return r, agentfile.Problem{}
}

// patches is what the tool changes of the run's state. Whether that fits is for the run to see.
func (f resultForm) patches() ([]run.Patch, string) {
	switch {
	case f.Patch == nil:
		return nil, ""
	case len(f.Patch) == 0:
		return nil, "want a list of one or more"
	case f.Error != nil || f.Fails != nil:
		return nil, "a call that fails changes nothing; want no error beside it"
	}
	list := make([]run.Patch, len(f.Patch))
	for i, p := range f.Patch {
		if p.Path == nil {
			return nil, fmt.Sprintf("patch %d: want a path, a JSON Pointer", i)
		}
		list[i] = run.Patch{Path: *p.Path, Value: p.Value}
	}
	return list, ""
}

// toolResult is what the tool gives. Media may stand beside a text; of the rest there is exactly one.
func (f resultForm) toolResult() (agent.ToolResultData, string) {
	var d agent.ToolResultData
	said := 0
	if f.Text != nil {
		d.Content = *f.Text
		said++
	}
	if f.JSON != nil {
		d.Content = string(f.JSON) // compact, as the reader of tools.yaml gives it
		said++
	}
	if f.Error != nil {
		d.Content, d.IsError = *f.Error, true
		said++
	}
	if f.Suspend != nil {
		d.Suspend = f.Suspend
		said++
	}
	if f.Fails != nil {
		said++
	}
	if f.Media != nil {
		d.Media = []run.Media{*f.Media}
		if f.Media.MediaType == "" || (f.Media.Data == "") == (f.Media.Blob == "") {
			return d, "media: want a mediaType, and either data or blob"
		}
	}
	if said > 1 || said == 0 && f.Media == nil {
		return d, fmt.Sprintf("got %d of text, json, error, fails and suspend, want one (or media)", said)
	}
	return d, ""
}
