package script

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// limits are those of a line and of a pattern.
var limits = jsonx.JSONLimits{Bytes: 64 << 20, Depth: 128}

// writtenLine is a line as it is written. Nil = the key is not there.
type writtenLine struct {
	Text      *string                `json:"text"`
	Chunks    []string               `json:"chunks"`
	Calls     []writtenCall          `json:"calls"`
	JSON      json.RawMessage        `json:"json"`
	Empty     *bool                  `json:"empty"`
	Error     *agent.ModelErrorClass `json:"error"`
	Reasoning json.RawMessage        `json:"reasoning"`
	Notes     *bool                  `json:"notes"`
	Cut       *bool                  `json:"cut"`
	Usage     struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
	} `json:"usage"`
	Stop  *string         `json:"stop"`
	Model *string         `json:"model"`
	Want  json.RawMessage `json:"want"`
}

// writtenCall is a call. Without an id the core mints one; without input it is {}.
type writtenCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// parseLine reads one line; its errors name the key.
func parseLine(raw []byte) (line, error) {
	var w writtenLine
	if err := decode(raw, &w); err != nil {
		return line{}, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return line{}, err
	}
	for _, key := range jsonx.SortedKeys(members) {
		if jsonx.JSONKind(members[key]) == 'n' {
			return line{}, fmt.Errorf("%s: want a value, got null", key)
		}
	}
	if err := w.check(); err != nil {
		return line{}, err
	}
	given := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	l := line{
		text: cmp.Or(given(w.Text), strings.Join(w.Chunks, ""), string(w.JSON)), chunks: w.Chunks,
		usage: run.Usage{Input: w.Usage.Input, Output: w.Usage.Output}, stop: given(w.Stop), model: given(w.Model),
		want: w.Want, notes: w.Notes != nil, cut: w.Cut != nil,
	}
	if w.Error != nil {
		l.class = *w.Error
	}
	for _, c := range w.Calls {
		if c.Input == nil {
			c.Input = json.RawMessage(`{}`)
		}
		l.calls = append(l.calls, agent.ReplyCall{ID: c.ID, Name: c.Name, Input: c.Input})
	}
	var err error
	l.reasoning, err = readReasoning(w.Reasoning)
	return l, err
}

// check wants a line to be one thing, and its values to make sense.
func (w *writtenLine) check() error {
	said, kinds := w.Text != nil || w.Chunks != nil || w.Calls != nil, 0
	for _, there := range []bool{said || w.Error != nil, w.JSON != nil, w.Empty != nil} {
		if there {
			kinds++
		}
	}
	isFalse := func(b *bool) bool { return b != nil && !*b }
	isEmpty := func(s *string) bool { return s != nil && *s == "" }
	switch {
	case kinds != 1:
		return errors.New("line is not exactly one of text or calls, json, empty, error")
	case isFalse(w.Empty), isFalse(w.Notes), isFalse(w.Cut):
		return errors.New("empty, notes and cut: want true, or no such key")
	case isEmpty(w.Stop), isEmpty(w.Model):
		return errors.New("stop and model: want a text that is not empty")
	case w.Chunks != nil && len(w.Chunks) == 0 || w.Calls != nil && len(w.Calls) == 0:
		return errors.New("chunks and calls: want one or more")
	case w.Text != nil && w.Chunks != nil && strings.Join(w.Chunks, "") != *w.Text:
		return errors.New("chunks: pieces do not make up the text")
	case slices.ContainsFunc(w.Calls, func(c writtenCall) bool { return c.Name == "" }):
		return errors.New("calls: want the name of each")
	case w.JSON != nil && jsonx.JSONKind(w.JSON) != '{':
		return errors.New("json: want an object")
	case w.Error != nil && !w.Error.Valid():
		return fmt.Errorf("error: %q is not a class of model errors", *w.Error)
	case w.Usage.Input < 0 || w.Usage.Output < 0:
		return errors.New("usage: want numbers of at least 0")
	case w.Reasoning != nil && w.Error != nil && !said:
		return errors.New("reasoning: a request that fails has none, unless it broke off behind text or calls")
	case w.Stop != nil && (w.Error != nil || w.Cut != nil):
		return errors.New("stop: a request that fails has none")
	case w.Notes != nil && w.Calls != nil:
		return errors.New("notes: who writes notes has no tools to call")
	case w.Cut != nil && (w.Error != nil || !said):
		return errors.New("cut: only text or calls break off")
	}
	return checkWant(w.Want)
}

// readReasoning reads reasoning: a text, an object {text, signature} or {redacted}, which is base64, or a list of
// those.
func readReasoning(raw json.RawMessage) (all []run.RepliedReasoning, err error) {
	items := []json.RawMessage{raw}
	switch jsonx.JSONKind(raw) {
	case 0:
		return nil, nil
	case '[':
		if err := json.Unmarshal(raw, &items); err != nil || len(items) == 0 {
			return nil, errors.New("reasoning: want one or more")
		}
	}
	for _, item := range items {
		var b struct {
			Text      string `json:"text"`
			Signature string `json:"signature"`
			Redacted  []byte `json:"redacted"`
		}
		if jsonx.JSONKind(item) == '"' {
			err = json.Unmarshal(item, &b.Text)
		} else {
			err = decode(item, &b)
		}
		if err == nil && (b.Text+b.Signature == "") == (b.Redacted == nil) {
			err = errors.New("want text and signature, or redacted alone")
		}
		if err != nil {
			return nil, fmt.Errorf("reasoning: %w", err)
		}
		all = append(all, run.RepliedReasoning{
			Reasoning: run.Reasoning{Text: b.Text, Signature: b.Signature, Redacted: b.Redacted},
		})
	}
	return all, nil
}

// lifecycles are the words of docs/scenarios.md.
var lifecycles = []run.Lifecycle{run.LifecycleInit, run.LifecycleToolResult, run.LifecycleOutputError,
	run.LifecycleInput, run.LifecycleNudge, run.LifecycleSummary, run.LifecycleNotes, run.LifecyclePlan,
	run.LifecycleRoute, run.LifecycleSynthesis}

// writtenWant is what a request is matched against; patterns may stand for any value.
type writtenWant struct {
	System    json.RawMessage `json:"system"`
	Turn      json.RawMessage `json:"turn"`
	Messages  json.RawMessage `json:"messages"`
	Tools     json.RawMessage `json:"tools"`
	Lifecycle run.Lifecycle   `json:"lifecycle"`
	Exhausted json.RawMessage `json:"exhausted"`
	Output    json.RawMessage `json:"output"`
}

func checkWant(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var w writtenWant
	err := decode(raw, &w)
	if l := w.Lifecycle; err == nil && l != "" && l[0] != '~' && !slices.Contains(lifecycles, l) {
		err = fmt.Errorf("lifecycle: %q is not one of %v", l, lifecycles)
	}
	if err == nil {
		err = Check(raw)
	}
	if err != nil {
		return fmt.Errorf("want: %w", err)
	}
	return nil
}

// callInput is where a line has the arguments of a call.
var callInput = regexp.MustCompile(`^/calls/\d+/input`)

// decode decodes an object into v. The error names the key. The arguments of a call may be any JSON, as models write
// them: a key twice, too.
func decode(raw []byte, v any) error {
	compact, err := jsonx.CompactJSON(raw, limits)
	var at *jsonx.JSONError
	if errors.As(err, &at) && callInput.MatchString(at.Pointer) && utf8.Valid(raw) {
		var b bytes.Buffer
		err = json.Compact(&b, raw)
		compact = b.Bytes()
	}
	if err == nil && jsonx.JSONKind(compact) != '{' {
		err = errors.New("want a JSON object")
	}
	if err == nil {
		err = jsonx.FieldCheck{}.Value(compact, reflect.TypeOf(v), "")
	}
	if err == nil {
		err = jsonx.WithoutValue(json.Unmarshal(compact, v))
	}
	return withPath(err)
}

// withPath names the place of a *jsonx.JSONError as mismatches do.
func withPath(err error) error {
	var at *jsonx.JSONError
	if !errors.As(err, &at) {
		return err
	}
	tokens, err := jsonx.ParsePointer(at.Pointer)
	if err != nil || len(tokens) == 0 {
		return at
	}
	path := ""
	for _, t := range tokens {
		if _, ok := jsonx.ArrayIndex(t); ok {
			path += "[" + t + "]"
		} else {
			path = Join(path, t)
		}
	}
	if at.Want == "a known key" {
		return fmt.Errorf("%s: unknown key", path)
	}
	return fmt.Errorf("%s: want %s", path, at.Want)
}

// Check says why want cannot be a pattern: it is not exactly one JSON value, an object has a key twice, or a string
// starting with ~ is not an RE2 expression. The error names the path.
func Check(want json.RawMessage) error {
	compact, err := jsonx.CompactJSON(want, limits)
	if err != nil {
		return withPath(err)
	}
	v, err := jsonx.DecodeNumbers(compact)
	if err != nil {
		return err
	}
	return checkPatterns("", v)
}

func checkPatterns(path string, v any) (err error) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range jsonx.SortedKeys(v) {
			err = errors.Join(err, checkPatterns(Join(path, key), v[key]))
		}
	case []any:
		for i, item := range v {
			err = errors.Join(err, checkPatterns(fmt.Sprintf("%s[%d]", path, i), item))
		}
	case string:
		if pattern, isPattern := strings.CutPrefix(v, "~"); isPattern {
			if _, err := regexp.Compile(pattern); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return err
}
