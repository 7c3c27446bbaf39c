package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestRequestParts(t *testing.T) {
	for template, want := range map[string][]agent.TemplatePart{
		"":                          nil,
		"a {b} c":                   {{Text: "a "}, {Arg: "b"}, {Text: " c"}},
		"{a}{b.c}":                  {{Arg: "a"}, {Arg: "b.c"}},
		"{page[size]}":              {{Arg: "page[size]"}},
		"{}":                        {{Text: "{}"}},
		"{a b}":                     {{Text: "{a b}"}},
		"{{a}}":                     {{Text: "{"}, {Arg: "a"}, {Text: "}"}},
		"{a":                        {{Text: "{a"}},
		"${secret:K}{a}":            {{Secret: "K"}, {Arg: "a"}},
		"{${secret:K}}":             {{Text: "{"}, {Secret: "K"}, {Text: "}"}},
		`{"k": "{a}"}`:              {{Text: `{"k": "`}, {Arg: "a"}, {Text: `"}`}},
		"$ {a} ${x}":                {{Text: "$ "}, {Arg: "a"}, {Text: " $"}, {Arg: "x"}},
		"x${secret:A}y${secret:B}z": {{Text: "x"}, {Secret: "A"}, {Text: "y"}, {Secret: "B"}, {Text: "z"}},
	} {
		got, err := agent.RequestParts(template)
		require.NoError(t, err, template)
		require.Equal(t, want, got, template)
	}
	for _, bad := range []string{"${secret:", "${secret:}", "${secret:a b}", "${secret:...}", "${secret:" + strings.Repeat("a", 65) + "}"} {
		_, err := agent.RequestParts(bad)
		require.ErrorContains(t, err, "want ${secret:NAME}", bad)
	}
}

func TestRequestURLs(t *testing.T) {
	for raw, want := range map[string]agent.RequestURL{
		"https://x.example":                       {Origin: "https://x.example"},
		"https://x.example:8443/a/{b}?c={d}&e&f=": {Origin: "https://x.example:8443", Path: "/a/{b}", Query: []agent.RequestParam{{Name: "c", Value: "{d}"}, {Name: "e", Value: ""}, {Name: "f", Value: ""}}},
		"http://[::1]:80?x=1=2":                   {Origin: "http://[::1]:80", Query: []agent.RequestParam{{Name: "x", Value: "1=2"}}},
		"https://x.example/bot${secret:K}/send":   {Origin: "https://x.example", Path: "/bot${secret:K}/send"},
	} {
		got, err := (&agent.HTTPTool{URL: raw}).Request()
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	for _, bad := range []string{
		"", "x.example", "//x.example", "HTTPS://x.example", "https://", "https:///a", "https://a@b/", "https://a\\b/", "https://{a}/", "https://x.example/a b",
		"https://x.example/\n", "https://x.example/é", "https://x.example/#f", "https://x.example/a\\b", "https://x%2eexample/", "ftp://x.example",
	} {
		_, err := (&agent.HTTPTool{URL: bad}).Request()
		require.Error(t, err, bad)
	}
}
