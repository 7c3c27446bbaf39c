// Package script is the scripted model of scenarios and of `--model script:FILE`: it answers from the lines of a
// model.jsonl (docs/scenarios.md) and says where a request is not what its line wants.
//
// A line is found by position in the journal and by nothing else, so that a request repeated after a crash, or in
// another process, gets the same line. The script is cut into blocks, one an inference: any number of error lines, then
// one reply. Inference i is answered from block i, its attempt k from the block's line k, and further attempts from its
// last. The last block may be errors alone: the inference that ends the run.
//
// An inference that was given up because its model was busy (Model.GiveUp) goes on behind the lines of the attempts
// that were made.
//
// A stream that breaks off is a reply with cut, where the definition keeps what was received, and so the inference's
// last line; or an error with what it had said before, which is not kept.
//
// Notes that a model writes of messages which are about to leave (LifecycleNotes) belong to the inference that they
// make room for. The lines that answer for them say notes and stand before its own; each of its attempts begins with
// the first of them.
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

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Script is a model.jsonl that was read without complaint. It never changes and is safe for concurrent use.
type Script struct {
	file   string
	blocks [][]line       // one an inference, none empty
	notes  map[int][]line // of a block, by its index
	end    int            // the number of the line after the last
}

// Line is a line of model.jsonl as it is written.
type Line struct {
	Text   *string               `json:"text,omitempty"`
	Chunks []string              `json:"chunks,omitempty"` // text in stream pieces; nil = in one piece
	Calls  []Call                `json:"calls,omitempty"`
	JSON   json.RawMessage       `json:"json,omitempty"` // an object, whose compact text is the reply
	Empty  bool                  `json:"empty,omitempty"`
	Error  agent.ModelErrorClass `json:"error,omitempty"` // the request fails, behind what else the line has
	Cut    bool                  `json:"cut,omitempty"`   // the stream breaks off behind the reply
	Stop   string                `json:"stop,omitempty"`  // why the model stopped, in a provider's word; "" = at its end
	Usage  *Usage                `json:"usage,omitempty"`
	Model  string                `json:"model,omitempty"` // the id of the model that must be asking; "" = any
	// before everything else: a text, a Thought, or a list of those
	Reasoning json.RawMessage `json:"reasoning,omitempty"`
	Notes     bool            `json:"notes,omitempty"` // it answers a request for notes
	Want      json.RawMessage `json:"want,omitempty"`  // matched against the request; nil = anything goes
}

// Call is a call of a line. Without an id the core mints one; without input it is {}.
type Call struct {
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input,omitempty"`
}

// Usage is a line's tokens.
type Usage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

// line is one reply or error.
type line struct {
	Line
	number    int // in the file, from 1
	text      string
	calls     []agent.ReplyCall
	reasoning []run.RepliedReasoning
}

// Parse reads a model.jsonl. Blank lines are skipped; a file without lines is a script that runs out at once. Unknown
// keys, keys given twice and bad values are errors that name file, line and key.
func Parse(file string, data []byte) (*Script, error) {
	s := &Script{file: file, end: 1, notes: map[int][]line{}}
	var block []line
	for i, raw := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		l, err := parseLine(raw)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		l.number, s.end = i+1, i+2
		if l.Notes {
			if len(block) > 0 {
				return nil, fmt.Errorf("%s:%d: notes: behind an error of the inference that they are for", file, i+1)
			}
			s.notes[len(s.blocks)] = append(s.notes[len(s.blocks)], l)
			continue
		}
		block = append(block, l)
		if l.Error == "" {
			s.blocks, block = append(s.blocks, block), nil
		}
	}
	if len(block) > 0 {
		s.blocks = append(s.blocks, block)
	}
	if last := s.notes[len(s.blocks)]; last != nil {
		return nil, fmt.Errorf("%s:%d: notes: before no inference", file, last[0].number)
	}
	return s, nil
}

// lineFor finds the line of an attempt (from 0) at an inference (from 1), or at the notes before it.
func (s *Script) lineFor(r agent.Request) (line, bool) {
	inference, attempt := r.Inference, r.Attempt
	if inference < 1 || inference > int64(len(s.blocks)) || attempt < 0 {
		return line{}, false
	}
	block := s.blocks[inference-1]
	if r.Lifecycle == run.LifecycleNotes {
		block = s.notes[int(inference-1)]
	}
	if len(block) == 0 {
		return line{}, false
	}
	return block[min(attempt, len(block)-1)], true
}

// keyError is an error with the path of the key that it is about.
type keyError struct{ key, text string }

func (e *keyError) Error() string { return e.key + ": " + e.text }

// withKey makes an error of package jsonx name the key, under that of the value.
func withKey(err error, under string) error {
	var where *jsonx.JSONError
	switch {
	case errors.As(err, &where):
	case err != nil && under != "":
		return &keyError{under, err.Error()}
	default:
		return err
	}
	key := strings.ReplaceAll(strings.Trim(under+where.Pointer, "/"), "/", ".")
	if key == "" {
		return fmt.Errorf("want %s", where.Want)
	}
	return &keyError{key, "want " + where.Want}
}

// arguments are the paths below a call's input.
var arguments = regexp.MustCompile(`^calls\.\d+\.input(\.|$)`)

// parseLine reads one line; its errors name the key.
func parseLine(raw []byte) (l line, err error) {
	err = withKey(jsonx.DecodeStrict(raw, &l.Line), "")
	// Models write arguments that nobody should accept.
	if where, ok := errors.AsType[*keyError](err); ok && arguments.MatchString(where.key) {
		if err = withKey(jsonx.FieldCheck{}.Value(raw, reflect.TypeFor[Line]()), ""); err == nil {
			err = json.Unmarshal(raw, &l.Line)
		}
	}
	if err != nil {
		return line{}, err
	}
	l.text = strings.Join(l.Chunks, "")
	if l.Text != nil {
		l.text = *l.Text
	}
	if l.JSON != nil {
		l.text = string(l.JSON) // compact, as everything that is decoded strictly
	}
	for i, c := range l.Calls {
		if c.Name == "" {
			return l, &keyError{fmt.Sprintf("calls.%d.name", i), "want the tool's name"}
		}
		var input bytes.Buffer
		if err := json.Compact(&input, []byte(cmp.Or(string(c.Input), "{}"))); err != nil {
			return l, err
		}
		l.calls = append(l.calls, agent.ReplyCall{ID: c.ID, Name: c.Name, Input: input.Bytes()})
	}
	if l.reasoning, err = readReasoning(l.Reasoning); err != nil {
		return l, err
	}
	if err := checkWant(l.Want); err != nil {
		return l, err
	}
	return l, l.check()
}

// check wants a line to be one thing. An error may have what was received before it.
func (l line) check() error {
	said, kinds := l.Text != nil || l.Chunks != nil || l.Calls != nil, 0
	for _, there := range []bool{said || l.Error != "", l.JSON != nil, l.Empty} {
		if there {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("line is not exactly one of text or calls, json, empty, error")
	case l.Error != "" && !l.Error.Valid():
		return &keyError{"error", fmt.Sprintf("%q is not a class of model errors", l.Error)}
	case l.JSON != nil && l.JSON[0] != '{':
		return &keyError{"json", "want an object"}
	case l.Text != nil && l.Chunks != nil && strings.Join(l.Chunks, "") != *l.Text:
		return &keyError{"chunks", "pieces do not make up the text"}
	case l.Usage != nil && min(l.Usage.Input, l.Usage.Output) < 0:
		return &keyError{"usage", "want numbers of at least 0"}
	case l.Reasoning != nil && l.Error != "" && !said:
		return &keyError{"reasoning", "a request that fails has none, unless it broke off behind text or calls"}
	case l.Stop != "" && (l.Error != "" || l.Cut):
		return &keyError{"stop", "a request that fails has none"}
	case l.Notes && l.Calls != nil:
		return &keyError{"notes", "who writes notes has no tools to call"}
	case l.Cut && (l.Error != "" || !said):
		return &keyError{"cut", "only text or calls break off"}
	}
	return nil
}

// readReasoning reads reasoning: a text, an object, or a list of those.
func readReasoning(raw json.RawMessage) ([]run.RepliedReasoning, error) {
	if raw == nil {
		return nil, nil
	}
	items := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
	}
	all := make([]run.RepliedReasoning, len(items))
	for i, item := range items {
		var b struct {
			Text      string `json:"text"`
			Signature string `json:"signature"`
			Redacted  []byte `json:"redacted"`
		}
		into := any(&b)
		if item[0] == '"' {
			into = &b.Text
		}
		if err := withKey(jsonx.DecodeStrict(item, into), "reasoning"); err != nil {
			return nil, err
		}
		if (b.Text+b.Signature == "") == (b.Redacted == nil) {
			return nil, &keyError{"reasoning", "want a text, text and signature, or redacted alone"}
		}
		all[i].Reasoning = run.Reasoning{Text: b.Text, Signature: b.Signature, Redacted: b.Redacted}
	}
	return all, nil
}

// lifecycles are the words of docs/scenarios.md, those of presets to come included.
var lifecycles = []string{"init", "tool_result", "output_error_feedback", "input", "nudge", "summary", "notes", "plan",
	"route", "synthesis"}

func checkWant(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var want struct {
		System    json.RawMessage `json:"system"`
		Turn      json.RawMessage `json:"turn"`
		Messages  json.RawMessage `json:"messages"`
		Tools     json.RawMessage `json:"tools"`
		Exhausted json.RawMessage `json:"exhausted"`
		Output    json.RawMessage `json:"output"`
		Lifecycle string          `json:"lifecycle"`
	}
	if err := withKey(jsonx.DecodeStrict(raw, &want), "want"); err != nil {
		return err
	}
	if w := cmp.Or(want.Lifecycle, "~"); w[0] != '~' && !slices.Contains(lifecycles, w) {
		return &keyError{"want.lifecycle", fmt.Sprintf("%q is not one of %v", w, lifecycles)}
	}
	if err := Check(raw); err != nil {
		return fmt.Errorf("want: %w", err)
	}
	return nil
}
