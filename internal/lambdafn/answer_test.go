package lambdafn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/runtime"
)

func TestReadAnswer(t *testing.T) {
	text := func(content string) runtime.Answer {
		return runtime.Answer{Tenant: "acme", Run: "r1", Call: "c1", Content: content, By: "service"}
	}
	failed := text("no")
	failed.IsError = true
	for in, want := range map[string]runtime.Answer{
		`{"run":"r1","call":"c1","result":"rain"}`:                  text("rain"),
		`{"run":"r1","call":"c1","result":{"n": 1.0}}`:              text(`{"n":1.0}`),
		`{"run":"r1","call":"c1","result":null}`:                    text("null"),
		`{"run":"r1","call":"c1","result":false}`:                   text("false"),
		`{"run":"r1","call":"c1","result":""}`:                      text(""),
		`{"run":"r1","call":"c1","error":"no"}`:                     failed,
		`{"run":"r1","call":"c1","result":1,"more":"of the event"}`: text("1"),
	} {
		d, ok := readDelivery([]byte(`{"tenant":"acme","answer":` + in + `}`))
		require.True(t, ok, in)
		got, err := readAnswer(d)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for in, want := range map[string]string{
		`{"tenant":"acme","answer":{"run":"r1","result":1}}`:                         "want the run and the call",
		`{"tenant":"acme","answer":{"call":"c1","result":1}}`:                        "want the run and the call",
		`{"tenant":"acme","answer":{"run":"r1","call":"c1"}}`:                        "want exactly one of result and error",
		`{"tenant":"acme","answer":{"run":"r1","call":"c1","result":1,"error":"x"}}`: "want exactly one of result and error",
		`{"tenant":"acme","answer":{"run":"r1","call":"c1","result":{"a":1,"a":2}}}`: "want each key once",
		`{"tenant":"acme","answer":[]}`:                                              "another form",
		`{"tenant":"A#B","answer":{"run":"r1","call":"c1","result":1}}`:              "tenant: want",
	} {
		d, ok := readDelivery([]byte(in))
		require.True(t, ok, in)
		_, err := readAnswer(d)
		var kind *Error
		require.ErrorAs(t, err, &kind, in)
		require.Equal(t, KindInvalid, kind.Kind, in)
		require.ErrorContains(t, err, want, in)
	}
	for _, in := range []string{
		`{"version":"2.0","body":"{\"tenant\":\"acme\",\"answer\":{}}"}`, `{"tenant":"acme"}`, `{"answer":{}}`, `{`, `[]`,
	} {
		_, ok := readDelivery([]byte(in))
		require.False(t, ok, "%s is no answer of the rule's", in)
	}
}
