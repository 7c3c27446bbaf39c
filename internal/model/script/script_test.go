package script

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func TestParseRefuses(t *testing.T) {
	tests := []struct{ text, err string }{
		{`{"text": "a"`, `want `},
		{`[]`, `want an object`},
		{`{"text": "a"} {}`, `want nothing after the value`},
		{"{\"text\": \"\xff\"}", `text: want valid UTF-8`},
		{`{}`, `line is not exactly one of text or calls, json, empty, error`},
		{`{"text": "a", "empty": true}`, `line is not exactly one of text or calls, json, empty, error`},
		{`{"json": {}, "chunks": ["{}"]}`, `line is not exactly one of text or calls, json, empty, error`},
		{`{"empty": true, "cut": true}`, `cut: only text or calls break off`},
		{`{"text": "a", "error": "auth", "cut": true}`, `cut: only text or calls break off`},
		{`{"txt": "a"}`, `txt: want a known key`},
		{`{"text": "a", "text": "a"}`, `text: want each key once`},
		{`{"text": 1}`, `text: want `},
		{`{"json": []}`, `json: want an object`},
		{`{"json": {"a": 1, "a": 2}}`, `json.a: want each key once`},
		{`{"error": "boom"}`, `error: "boom" is not a class of model errors`},
		{`{"calls": [{"name": "a"}, {"id": "c1"}]}`, `calls.1.name: want the tool's name`},
		{`{"calls": [{"name": "a", "args": {}}]}`, `calls.0.args: want a known key`},
		{`{"text": "", "usage": {"input": -1}}`, `usage: want numbers of at least 0`},
		{`{"text": "", "usage": {"input": 1.5}}`, `json key "usage.input": want a whole number`},
		{`{"error": "auth", "reasoning": "hm"}`, `reasoning: a request that fails has none, unless it broke off behind text or calls`},
		{`{"error": "auth", "stop": "length"}`, `stop: a request that fails has none`},
		{`{"text": "", "reasoning": ""}`, `reasoning: want a text, text and signature, or redacted alone`},
		{`{"text": "", "reasoning": 1}`, `reasoning: want `},
		{`{"text": "", "reasoning": [{"text": "a", "redacted": "AA=="}]}`, `reasoning: want a text, text and signature, or redacted alone`},
		{`{"text": "", "reasoning": {"redacted": "A"}}`, `reasoning: illegal base64`},
		{`{"text": "", "reasoning": {"thought": "a"}}`, `reasoning.thought: want a known key`},
		{`{"text": "", "want": []}`, `want: want an object`},
		{`{"text": "", "want": {"message": []}}`, `want.message: want a known key`},
		{`{"text": "", "want": {"lifecycle": "start"}}`, `want.lifecycle: "start" is not one of [init tool_result output_error_feedback input nudge summary notes plan route synthesis]`},
		{`{"text": "", "want": {"system": "~("}}`, `want: system: error parsing regexp`},
		{`{"text": "", "want": {"messages": [{"role": "a", "role": "b"}]}}`, `want.messages.0.role: want each key once`},
		{`{"chunks": ["a", 1]}`, `chunks.1: want `},
		{`{"text": "abc", "chunks": ["a", "b"]}`, `chunks: pieces do not make up the text`},
		{`{"notes": true, "calls": [{"id": "a", "name": "b", "input": {}}]}`, `notes: who writes notes has no tools to call`},
		{`{"notes": true, "text": "a"}`, `notes: before no inference`},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			_, err := Parse("model.jsonl", []byte("{\"text\": \"fine\"}\n\n"+tt.text+"\n"))
			require.ErrorContains(t, err, "model.jsonl:3: "+tt.err)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"calls": [{"id": "c1", "name": "a", "input": {}}], "want": {"tools": ["a"]}}`))
	f.Add([]byte("{\"error\": \"auth\"}\n{\"chunks\": [\"a\"], \"usage\": {\"input\": 1}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("m", data)
		if err != nil {
			require.Nil(t, s)
			require.Contains(t, err.Error(), "m:")
			return
		}
		for _, block := range s.blocks {
			for i, l := range block[:len(block)-1] {
				require.NotEmpty(t, l.Error, "line %d of a block is a reply before the last", i)
			}
			for _, c := range block[len(block)-1].calls {
				require.True(t, json.Valid(c.Input))
			}
		}
	})
}

// Notes are answered before the inference that they make room for, and its own lines are counted without them.
func TestNotesHaveLinesOfTheirOwn(t *testing.T) {
	s, err := Parse("model.jsonl", []byte(`{"text": "one"}
{"notes": true, "error": "server"}
{"notes": true, "text": "noted"}
{"text": "two"}`))
	require.NoError(t, err)
	for _, tt := range []struct {
		inference int64
		attempt   int
		lifecycle run.Lifecycle
		want      string
		ok        bool
	}{
		{1, 0, run.LifecycleInit, "one", true},
		{1, 0, run.LifecycleNotes, "", false},
		{2, 1, run.LifecycleNotes, "noted", true},
		{2, 5, run.LifecycleNotes, "noted", true},
		{2, 0, run.LifecycleInput, "two", true},
	} {
		l, ok := s.lineFor(agent.Request{Inference: tt.inference, Attempt: tt.attempt, Lifecycle: tt.lifecycle})
		require.Equal(t, tt.ok, ok)
		require.Equal(t, tt.want, l.text)
	}
	_, err = Parse("model.jsonl", []byte(`{"error": "server"}
{"notes": true, "text": "a"}
{"text": "b"}`))
	require.ErrorContains(t, err, "model.jsonl:2: notes: behind an error of the inference that they are for")
	l, ok := s.lineFor(agent.Request{Inference: 2, Lifecycle: run.LifecycleNotes})
	require.True(t, ok)
	require.Equal(t, agent.ModelServer, l.Error)
	require.Equal(t, []int{1, 2, 3, 4}, New(s).Leftover())
}
