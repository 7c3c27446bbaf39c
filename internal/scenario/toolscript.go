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

// toolScript is a tool with its scripted results.
type toolScript struct {
	spec        agent.ToolSpec
	results     []result // in order of execution; the last one repeats. None = the tool must not be called
	reconciles  bool
	resultsLine int // of the results in the archive
}

// result is the result of one execution.
type result struct {
	resultForm
	data    agent.ToolResultData
	sleep   time.Duration
	failure error // the call fails with this error; nil = it does not fail
}

// resultForm is a result as it is written.
type resultForm struct {
	Call    string          `json:"call,omitempty"` // whose execution it is of; "" = it is the next one's
	Text    *string         `json:"text,omitempty"`
	JSON    json.RawMessage `json:"json,omitempty"`
	Error   *string         `json:"error,omitempty"`
	Fails   *string         `json:"fails,omitempty"`
	Media   *run.Media      `json:"media,omitempty"`
	Sleep   string          `json:"sleep,omitempty"`
	Suspend *run.Ticket     `json:"suspend,omitempty"`
	Patch   []patchForm     `json:"patch,omitempty"`

	Input  json.RawMessage `json:"input,omitempty"`  // the wanted arguments; nil = any
	Resume json.RawMessage `json:"resume,omitempty"` // the wanted answer to the tool's question; null = none, nil = any
	State  json.RawMessage `json:"state,omitempty"`  // the wanted view of the run's state; nil = any
}

// patchForm is a change of the run's state as it is written. Without a value, it removes the member.
type patchForm struct {
	Path  *string         `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

func (ps *problems) loadToolScript(t agentfile.Tool) toolScript {
	c := toolScript{spec: t.Spec, reconciles: true, resultsLine: t.Line}
	if v, ok := t.Extra["reconcile"]; ok {
		if json.Unmarshal(v.JSON, &c.reconciles) != nil || isNull(v.JSON) {
			ps.at(v.Line, v.Key, "want true or false")
		}
	}
	v, ok := t.Extra["results"]
	if !ok {
		return c
	}
	if t.Spec.AnsweredLater() {
		kind := "kind " + string(t.Spec.Kind)
		if t.Spec.Kind == agent.KindLambda {
			kind = "async"
		}
		ps.at(v.Line, v.Key, "does not go with %s: people answer", kind)
	}
	c.resultsLine = v.Line
	if len(v.Items) == 0 {
		ps.at(v.Line, v.Key, "want a list of one or more")
	}
	for _, item := range v.Items {
		r, key, text := parseResult(item.JSON)
		if text != "" {
			ps.at(item.Line, joinPath(item.Key, key), "%s", text)
		}
		c.results = append(c.results, r)
	}
	for _, r := range c.results {
		if (r.Call == "") != (c.results[0].Call == "") {
			ps.at(v.Line, v.Key, "want a call in each of them, or in none")
			break
		}
	}
	return c
}

// ofCall returns the indexes of the results that name a call, in order; none = its executions take the next ones.
func (c *toolScript) ofCall(call string) (own []int) {
	for i, r := range c.results {
		if r.Call == call {
			own = append(own, i)
		}
	}
	return own
}

// parseResult parses a result. If it is invalid, text describes the problem with the key.
func parseResult(raw json.RawMessage) (r result, key, text string) {
	f := &r.resultForm
	if _, key, text := decodeStrict(raw, f); text != "" {
		return result{}, key, text
	}
	if f.Suspend != nil {
		if _, err := policy.Checked(*f.Suspend); err != nil {
			return result{}, "suspend", err.Error()
		}
	}
	if f.Fails != nil {
		r.failure = errors.New(*f.Fails)
	}
	if f.Sleep != "" {
		var err error
		if r.sleep, err = agentfile.ParseDuration(f.Sleep); err != nil {
			return result{}, "sleep", err.Error()
		}
	}
	if r.data, text = f.toolResult(); text != "" {
		return r, "", text
	}
	r.data.Patch, text = f.patches()
	return r, "patch", text
}

// patches returns the changes of the run's state. The run checks whether they apply.
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

// toolResult returns the tool's result. It has exactly one of text, json, error, fails and suspend; media may come with
// it or alone.
func (f resultForm) toolResult() (agent.ToolResultData, string) {
	d := agent.ToolResultData{Suspend: f.Suspend, IsError: f.Error != nil}
	given := 0
	for _, isSet := range []bool{f.Text != nil, f.Error != nil, f.JSON != nil, f.Suspend != nil, f.Fails != nil} {
		if isSet {
			given++
		}
	}
	switch {
	case f.Text != nil:
		d.Content = *f.Text
	case f.Error != nil:
		d.Content = *f.Error
	case f.JSON != nil:
		d.Content = string(f.JSON) // compact, since agentfile made it from YAML
	}
	if f.Media != nil {
		d.Media = []run.Media{*f.Media}
		if f.Media.MediaType == "" || (f.Media.Data == "") == (f.Media.Blob == "") {
			return d, "media: want a mediaType, and either data or blob"
		}
	}
	if given > 1 || given == 0 && f.Media == nil {
		return d, fmt.Sprintf("got %d of text, json, error, fails and suspend, want one (or media)", given)
	}
	return d, ""
}
