package jsonx_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
)

// The document of RFC 6901, section 5, and more.
const pointerDoc = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"deep":{"list":[{"x":1.50}],"null":null}}`

func TestLookup(t *testing.T) {
	for pointer, want := range map[string]string{
		"": pointerDoc, "/foo": `["bar","baz"]`, "/foo/0": `"bar"`, "/": "0", "/a~1b": "1", "/c%d": "2", "/e^f": "3", "/g|h": "4",
		`/i\j`: "5", `/k"l`: "6", "/\x20": "7", "/m~0n": "8", "/deep/list/0/x": "1.50", "/deep/null": "null",
	} {
		got, ok, err := jsonx.Lookup(json.RawMessage(pointerDoc), pointer)
		require.NoError(t, err, pointer)
		require.True(t, ok, pointer)
		require.Equal(t, want, string(got))
	}
}

func TestLookupLeadsNowhere(t *testing.T) {
	for _, pointer := range []string{"/no", "/foo/2", "/foo/-", "/foo/00", "/foo/+1", "/foo/x", "/foo/", "/foo/0/x", "/deep/null/x", "/foo/99999999999999999999", "/FOO"} {
		got, ok, err := jsonx.Lookup(json.RawMessage(pointerDoc), pointer)
		require.NoError(t, err, pointer)
		require.False(t, ok, pointer)
		require.Nil(t, got)
	}
}

func TestLookupRefuses(t *testing.T) {
	for _, pointer := range []string{"foo", "/a~2b", "/a~", "#/foo", "/~01~"} {
		_, _, err := jsonx.Lookup(json.RawMessage(pointerDoc), pointer)
		require.ErrorContains(t, err, "json pointer: want", pointer)
	}
	_, _, err := jsonx.Lookup(json.RawMessage(`{"a":`), "/a")
	require.ErrorContains(t, err, `look up ""`)
}

func TestPointerEscapesBothWays(t *testing.T) {
	tokens := []string{"a/b", "m~n", "~1", "", "x"}
	back, err := jsonx.ParsePointer(jsonx.FormatPointer(tokens))
	require.NoError(t, err)
	require.Equal(t, tokens, back)
}
