package openai

import "testing"

// A document that is no reply is a problem or an error, and never a panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"message":{"content":"x","tool_calls":[{"id":"c1","type":"function","function":{"name":"pay","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":"x"}],"tool_calls":[{"function":{"arguments":{"a":1}}}]}}]}`, `{"error":{"message":"m","code":429}}`, `{"choices":[]}`, `{"choices":null}`, `[]`, `null`,
		`{"choices":[{"message":null}]}`, `{"choices":[{"message":{"content":7}}],"usage":{"prompt_tokens":-1e99}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, p, err := parseCompletion(data); err == nil && p == nil && len(data) == 0 {
			t.Fatal("nothing was taken for a reply")
		}
	})
}
