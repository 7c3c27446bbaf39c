package web

import (
	"html/template"
	"maps"
	"regexp"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// consolePages are the console's pages, by name: their texts with what they use.
func consolePages() map[string]string {
	style, _ := styles()
	out := map[string]string{}
	for name, text := range map[string]string{
		"home": read(consoleFiles, "console/home.html"), "run": read(consoleFiles, "console/run.html"), "approval": file("approval.html"), "plain": file("plain.html"),
	} {
		out[name] = strings.ReplaceAll(file("layout.html")+read(consoleFiles, "console/parts.html")+text, "/*style*/", style)
	}
	return out
}

// addresses are what the console's links may lead to: what stands in braces is an id of the runtime's own making.
var addresses = regexp.MustCompile(`^(#[a-z-]*|#call-\{\{\.call\}\}|/|/runs/\{\{\.(run|id|root|child)\}\}|/approvals/\{\{\.(id|approval)\}\}|/v1/runs/\{\{\.run\}\})$`)

// The console's pages hold values as the page of a request does, and beside that in links of its own; their one script is a file.
func TestConsoleTemplatesHoldValuesInTextAndLinks(t *testing.T) {
	known := map[string]any{}
	for _, name := range []string{"and", "or", "not", "eq", "ne", "len", "index"} {
		known[name] = true
	}
	for name, text := range consolePages() {
		trees, err := parse.Parse(name, text, "", "", known)
		require.NoError(t, err)
		s := &scanner{t: t, name: name, in: "text", console: true}
		s.follow(trees[name].Root, trees)
		require.Equal(t, "text", s.in)
		require.NotRegexp(t, regexp.MustCompile(`(?i)\s(on[a-z]+|style|srcset|action|formaction|xlink:href|ping|background|poster|data)\s*=`), text, name)
		for _, href := range regexp.MustCompile(`(?i)href\s*=\s*("?[^">]*"?)`).FindAllStringSubmatch(text, -1) {
			require.Regexp(t, addresses, strings.Trim(href[1], `"`), name)
		}
		require.Equal(t, 1, strings.Count(text, "<script"), name)
		require.Equal(t, 1, strings.Count(text, `<script src="/console.js" defer></script>`), name)
		require.Equal(t, 1, strings.Count(text, "src="), name)
	}
}

// The console's script makes no HTML, runs no text, and speaks to nobody else.
func TestConsoleScriptMakesNoHTML(t *testing.T) {
	script := read(consoleFiles, "console/console.js")
	for _, never := range []string{"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "createContextualFragment", "http:", "https:", "import(", "importScripts", "postMessage", "outerHTML ="} {
		require.NotContains(t, script, never)
	}
}

const anID = "raaaaaaaaaaaaaaaaaaaaaaaaa"

// fullConsole is data that takes every way through the console's pages.
func fullConsole() map[string]any {
	data := full()
	text := data["heading"].([]any)
	args, facts := data["arguments"], data["facts"]
	status := map[string]any{"kind": "waiting", "label": "Waiting"}
	when := map[string]any{"at": "2026", "text": "now"}
	block := func(kind string) any {
		return map[string]any{"role": "user", "n": "1", "who": "w", "seen": "once", "evicted": true, "block": map[string]any{
			"kind": kind, "text": text, "label": "l", "tool": text, "call": "1", "input": args, "bad": true, "cut": "c",
		}}
	}
	option := func(label any) []any { return []any{map[string]any{"value": "v", "label": label, "on": true}} }
	maps.Copy(data, map[string]any{
		"start": "s", "trail": []any{map[string]any{"run": anID, "label": "l"}}, "waiting": "1", "moreWaiting": true, "none": "n", "statuses": option("l"), "agents": option(text),
		"approvals": []any{map[string]any{
			"id": anID, "arguments": args, "more": true, "level": "high", "risk": map[string]any{"level": "high", "label": "h", "text": "t"}, "title": text, "agent": text, "run": anID, "short": "s", "root": anID, "rootShort": "r", "left": "l", "until": when, "approvers": text, "quorum": "q",
		}},
		"unread": text,
		"runs":   []any{map[string]any{"id": anID, "short": "s", "preview": text, "child": true, "status": status, "agent": text, "started": when, "updated": when}},
		"paged":  true, "cursor": "c", "statusValue": "s", "agentValue": "a", "inside": true,
		"run": anID, "seq": "1", "eventTypes": "a b", "every": "0", "statusLine": "s", "range": "r", "older": "1", "newest": true, "eventCount": "1", "callCount": "1",
		"waits":    []any{map[string]any{"arguments": args, "more": true, "tool": text, "what": "w", "until": when, "left": "l", "approval": anID, "child": anID, "childLabel": "c"}},
		"messages": []any{block("text"), block("media"), block("tool_use"), block("tool_result"), block("reasoning")}, "output": map[string]any{"words": text, "lines": args, "cut": "c"}, "facts": facts,
		"tree": []any{map[string]any{"depth": "1", "status": status, "here": true, "agent": text, "short": "s", "id": anID}, map[string]any{"depth": "1", "status": status, "here": false, "agent": text, "short": "s", "id": anID}},
		"calls": []any{map[string]any{
			"n": "1", "tool": text, "status": "failed", "label": "l", "detail": "d", "waits": "w", "approval": anID, "child": anID, "input": args, "bytes": "b", "cut": "c",
		}},
		"events": []any{map[string]any{"id": "1.0", "type": "t", "when": when}},
	})
	return data
}

// withTexts is the data with other texts, in which ids and what templates compare stay as they are.
func withTexts(v any, draw func() string) any {
	switch v := v.(type) {
	case string:
		return draw()
	case []any:
		var out []any
		for _, e := range v {
			out = append(out, withTexts(e, draw))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			switch k {
			case "kind", "id", "run", "root", "child", "approval", "call":
				out[k] = e
				continue
			}
			out[k] = withTexts(e, draw)
		}
		return out
	}
	return v
}

// The console's pages are what html/template makes of them, too.
func TestConsolePagesAreThoseOfHTMLTemplate(t *testing.T) {
	for name, text := range consolePages() {
		theirs, err := template.New(name).Parse(text)
		require.NoError(t, err)
		ours := parseTexts(name, text)
		same := func(t require.TestingT, data map[string]any) {
			switch name {
			case "plain":
				data["heading"] = data["title"]
			case "run":
				data["status"], data["lede"] = map[string]any{"kind": "done", "label": data["title"]}, data["heading"]
			case "approval":
				data["id"] = data["heading"]
			}
			got, err := ours.HTML(data)
			require.NoError(t, err)
			var want strings.Builder
			require.NoError(t, theirs.Execute(&want, data))
			require.Equal(t, want.String(), got, name)
		}
		same(t, fullConsole())
		for _, h := range hostile {
			same(t, withTexts(fullConsole(), func() string { return h }).(map[string]any))
		}
		rapid.Check(t, func(t *rapid.T) {
			anything := rapid.OneOf(rapid.SampledFrom(hostile), rapid.String())
			same(t, withTexts(fullConsole(), func() string { return anything.Draw(t, "text") }).(map[string]any))
		})
	}
}
