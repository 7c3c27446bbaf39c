package agentfile

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/hook"
)

// everything is a file with every key, as a tree. The options let it name code.
func everything(t testing.TB) (*node, Options) {
	t.Helper()
	data, err := os.ReadFile("testdata/everything.yaml")
	require.NoError(t, err)
	dir, err := os.Getwd()
	require.NoError(t, err)
	opt := Options{AllowUnknownTools: true, Hooks: hook.Set{}, Dir: dir + "/testdata"}
	r := newReader("agent.yaml", opt)
	root, ok := r.tree(data)
	require.True(t, ok)
	return root.node, opt
}

// written is a tree as text, a key a line, and where each path stands in it.
type written struct {
	text  strings.Builder
	line  int
	lines map[string]int
}

func write(n *node) (string, map[string]int) {
	w := &written{line: 1, lines: map[string]int{}}
	w.node(n, "", "")
	return w.text.String() + "\n", w.lines
}

func (w *written) put(s string) {
	w.line += strings.Count(s, "\n")
	w.text.WriteString(s)
}

func (w *written) node(n *node, path, indent string) {
	switch {
	case n.kind == raw:
		w.put(n.text)
	case n.kind == kindMapping && len(n.members) > 0:
		w.put("{")
		for i, m := range n.members {
			w.put(strings.Repeat(",", min(i, 1)) + "\n" + indent + " ")
			at := join(path, m.key)
			if _, twice := w.lines[at]; !twice {
				w.lines[at] = w.line
			}
			w.put(string(appendString(nil, m.key)) + ": ")
			w.node(m.value, at, indent+" ")
		}
		w.put("\n" + indent + "}")
	case n.kind == kindList && len(n.items) > 0:
		w.put("[")
		for i, item := range n.items {
			w.put(strings.Repeat(",", min(i, 1)) + "\n" + indent + " ")
			at := fmt.Sprintf("%s[%d]", path, i)
			w.lines[at] = w.line
			w.node(item, at, indent+" ")
		}
		w.put("\n" + indent + "]")
	default:
		w.put(string(n.json()))
	}
}

// about is what a file needs to say so that it says something of one key: to read all of it each time would take minutes.
func about(root *node, path string) *node {
	top := path
	if i := strings.IndexAny(path, ".["); i >= 0 {
		top = path[:i]
	}
	c := *root
	c.members = nil
	for _, m := range root.members {
		switch {
		case m.key == top, m.key == "name", m.key == "system", m.key == "tools" && (top == "stop" || top == "xml"), m.key == "output" && top == "model":
			c.members = append(c.members, m)
		case m.key == "model":
			c.members = append(c.members, member{"model", &node{kind: raw, text: "{provider: demo, price: {input: 3, output: 15}}"}})
		}
	}
	return &c
}

// raw is a piece of text that stands in a file as it is.
const raw kind = "as it is"

// edited is a copy of the tree in which change has made something else of what stands at a path.
func edited(n *node, path, at string, change func(*node)) *node {
	c := *n
	c.members, c.items = slices.Clone(n.members), slices.Clone(n.items)
	if path == at {
		change(&c)
		return &c
	}
	for i, m := range c.members {
		if p := join(path, m.key); isWithin(at, p) {
			c.members[i].value = edited(m.value, p, at, change)
		}
	}
	for i, item := range c.items {
		if p := fmt.Sprintf("%s[%d]", path, i); isWithin(at, p) {
			c.items[i] = edited(item, p, at, change)
		}
	}
	return &c
}

// refused parses a tree and wants Problems, each of the form that errors have.
func refused(t *testing.T, n *node, opt Options) (Problems, map[string]int) {
	t.Helper()
	text, lines := write(n)
	_, err := Parse("agent.yaml", []byte(text), opt)
	if err == nil {
		return nil, lines
	}
	requireProblems(t, err)
	return err.(Problems), lines //nolint:errorlint // requireProblems has seen it
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// pattern is a path without the places in lists.
func pattern(path string) string { return listIndex.ReplaceAllString(path, "[]") }

// grammar crawls a file for its mappings whose keys are fixed: by path, the keys that each takes. The reader says them itself, of a key that it does
// not know.
func grammar(t *testing.T, root *node, opt Options) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	var crawl func(n *node, path string)
	crawl = func(n *node, path string) {
		if n.kind == kindMapping {
			bad := edited(about(root, path), "", path, func(n *node) { n.members = append(n.members, member{"zzzzz", &node{kind: kindNumber, text: "1"}}) })
			problems, _ := refused(t, bad, opt)
			for _, p := range problems {
				if rest, ok := strings.CutPrefix(p.Text, "got an unknown key, want one of "); ok && p.Key == join(path, "zzzzz") {
					found[path] = strings.Split(rest, ", ")
				}
			}
		}
		for _, m := range n.members {
			crawl(m.value, join(path, m.key))
		}
		for i, item := range n.items {
			crawl(item, fmt.Sprintf("%s[%d]", path, i))
		}
	}
	crawl(root, "")
	return found
}

// inputs are what stands in place of a value.
var inputs = []struct {
	name string
	node *node
}{
	{"a mapping", &node{kind: raw, text: "{zzz: 1}"}},
	{"an empty mapping", &node{kind: raw, text: "{}"}},
	{"a list", &node{kind: raw, text: "[[1]]"}},
	{"an empty list", &node{kind: raw, text: "[]"}},
	{"a string", &node{kind: raw, text: `"zzz"`}},
	{"an empty string", &node{kind: raw, text: `""`}},
	{"a fraction", &node{kind: raw, text: "7.5"}},
	{"less than zero", &node{kind: raw, text: "-1"}},
	{"1e400", &node{kind: raw, text: "1e400"}},
	{"20 digits", &node{kind: raw, text: "99999999999999999999"}},
	{"true", &node{kind: raw, text: "true"}},
	{"yes", &node{kind: raw, text: "yes"}},
	{"null", &node{kind: raw, text: "null"}},
}

// forms are what no value may be, whatever its key.
var forms = map[string]string{
	"&a 1": "got an anchor or alias, want the value itself (a text that starts with & or * needs quotes)", "*a": "got an anchor or alias, want the value itself (a text that starts with & or * needs quotes)",
	"!!binary aGk=": "got a tag, want a plain value",
	"0x10":          "got a number in a form JSON does not have, want decimal digits (or quotes, if it is a text)",
}

// TestEveryKeyRefuses is the table of bad files: every key of the grammar, with every kind of value that it does not take, and what is said of it.
// testdata/keys.txt holds the table; go test -update writes it, and the diff is to be read.
func TestEveryKeyRefuses(t *testing.T) {
	root, opt := everything(t)
	problems, _ := refused(t, root, opt)
	require.Empty(t, problems, "everything.yaml is a good file")
	var out strings.Builder
	out.WriteString("Every key of an agent.yaml, and what is said of values that it does not take. go test -update writes it; read the diff.\n")
	covered, cases := map[string]bool{}, 0
	keys := grammar(t, root, opt)
	known := map[string]map[string]bool{} // by the keys of a mapping: those that stand in the file
	for _, path := range slices.Sorted(maps.Keys(keys)) {
		set := strings.Join(keys[path], " ")
		if known[set] == nil {
			known[set] = map[string]bool{}
		}
		mapping := at(root, path)
		for _, m := range mapping.members {
			known[set][m.key] = true
			p := pattern(join(path, m.key))
			if covered[set+" "+m.key] { // a model is read alike wherever one stands
				continue
			}
			covered[set+" "+m.key] = true
			part := about(root, join(path, m.key))
			problems, _ := refused(t, part, opt)
			require.Empty(t, problems, p)
			n, said := refuseKey(t, part, opt, join(path, m.key))
			cases += n
			fmt.Fprintf(&out, "\n%s\n%s", p, said)
			cases += refuseName(t, part, opt, path, m.key)
		}
	}
	for set, there := range known {
		for _, key := range strings.Fields(set) {
			require.True(t, there[key], "everything.yaml says nothing of the key %s, one of %s", key, set)
		}
	}
	t.Logf("%d keys, %d cases", len(covered), cases)
	if *update {
		require.NoError(t, os.WriteFile("testdata/keys.txt", []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/keys.txt")
	require.NoError(t, err)
	got := strings.Split(out.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") { // one line says more than all of them
		require.Less(t, i, len(got))
		require.Equal(t, line, got[i], "line %d of testdata/keys.txt", i+1)
	}
	require.Len(t, out.String(), len(want))
}

func at(n *node, path string) *node {
	var got *node
	edited(n, "", path, func(n *node) { got = n })
	return got
}

// refuseKey puts every input in place of a key's value and gives what is said, the same once.
func refuseKey(t *testing.T, root *node, opt Options, path string) (cases int, said string) {
	t.Helper()
	var order []string
	by := map[string][]string{}
	refusedSome := false
	for _, in := range inputs {
		cases++
		bad := edited(root, "", path, func(n *node) { *n = *in.node })
		problems, lines := refused(t, bad, opt)
		text := "ok"
		for _, p := range problems {
			if isWithin(p.Key, path) || isWithin(path, p.Key) {
				require.Equal(t, lineIn(lines, p.Key), p.Line, "%s: %s: %v", path, in.name, p)
				text = strings.TrimPrefix(pattern(p.Key), pattern(path)) + ": " + p.Text
				break
			}
			text = pattern(p.Key) + ": " + p.Text // it does not go with something else
		}
		refusedSome = refusedSome || text != "ok"
		if by[text] == nil {
			order = append(order, text)
		}
		by[text] = append(by[text], in.name)
	}
	require.True(t, refusedSome || pattern(path) == "tools[].body", "%s takes everything", path) // a body is any JSON
	for form, want := range forms {
		cases++
		problems, lines := refused(t, edited(root, "", path, func(n *node) { *n = node{kind: raw, text: form} }), opt)
		require.True(t, slices.ContainsFunc(problems, func(p Problem) bool { return p.Key == path && p.Line == lines[path] && p.Text == want }), "%s: %s: %v", path, form, problems)
	}
	var b strings.Builder
	for _, text := range order {
		fmt.Fprintf(&b, "  %s\n    %s\n", strings.Join(by[text], ", "), text)
	}
	return cases, b.String()
}

// lineIn is where a path stands in a text, or what it would stand in.
func lineIn(lines map[string]int, path string) int {
	for ; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if line, ok := lines[path]; ok {
			return line
		}
	}
	return 1
}

// refuseName misspells a key and writes it twice: what is wrong is named with its line, and the key that was meant.
func refuseName(t *testing.T, root *node, opt Options, path, key string) int {
	t.Helper()
	rename := func(to string) (Problems, map[string]int) {
		bad := edited(root, "", path, func(n *node) {
			for i, m := range n.members {
				if m.key == key {
					n.members[i].key = to
				}
			}
		})
		return refused(t, bad, opt)
	}
	wrong := key + "s"
	if strings.HasSuffix(key, "s") {
		wrong = key[:len(key)-1]
	}
	if len(key) > 3 { // of less, another key may be as near
		problems, lines := rename(wrong)
		at := join(path, wrong)
		i := slices.IndexFunc(problems, func(p Problem) bool { return p.Key == at })
		require.GreaterOrEqual(t, i, 0, "%s: %v", at, problems)
		require.Equal(t, lines[at], problems[i].Line)
		require.Contains(t, problems[i].Text, "got an unknown key, want one of ")
		require.True(t, strings.HasSuffix(problems[i].Text, "; did you mean "+key+"?"), "%s: %s", at, problems[i].Text)
	}
	problems, lines := rename(strings.ToUpper(key))
	i := slices.IndexFunc(problems, func(p Problem) bool { return p.Key == join(path, strings.ToUpper(key)) })
	require.GreaterOrEqual(t, i, 0, "%s in capitals: %v", key, problems)
	require.Equal(t, lines[problems[i].Key], problems[i].Line)

	twice := edited(root, "", path, func(n *node) { n.members = append(n.members, member{key, &node{kind: raw, text: "1"}}) })
	problems, _ = refused(t, twice, opt)
	require.True(t, slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Key == join(path, key) && strings.HasPrefix(p.Text, "got the key a second time, want it once (first in line ")
	}), "%s twice: %v", key, problems)
	return 3
}

// TestBadForms is what may be wrong with a file as a whole, whatever it says.
func TestBadForms(t *testing.T) {
	const tooMuch = "agent.yaml:1: got too much in one file or line, or too deep, want less than 64 levels"
	_, opt := everything(t)
	lines := "name: clerk\nsystem: Hi.\nmodel: {provider: demo}\n"
	for name, c := range map[string]struct{ in, want string }{
		"tabs":                 {lines + "limits:\n\tusd: 1\n", "agent.yaml:5: not YAML"},
		"tabs in a list":       {lines + "tools:\n\t- name: x\n", "agent.yaml:5: not YAML"},
		"two documents":        {lines + "---\n" + lines, "agent.yaml:4: got a second document, want one"},
		"an ended document":    {lines + "...\n" + lines, "agent.yaml:5: got a second document, want one"},
		"a merge key":          {lines + "limits:\n  <<: {usd: 1}\n", "agent.yaml:5: limits["},
		"a merged alias":       {"a: &a {usd: 1}\n" + lines + "limits:\n  <<: *a\n", "agent.yaml:1: a: "},
		"a bomb of aliases":    {lines + "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n", "agent.yaml:4: a: got an anchor or alias"},
		"not UTF-8":            {lines + "version: \"\xff\xfe\"\n", "agent.yaml:1: got bytes that are not UTF-8, want UTF-8"},
		"UTF-16":               {"\xff\xfen\x00a\x00m\x00e\x00", "agent.yaml:1: got bytes that are not UTF-8, want UTF-8"},
		"a NUL":                {lines + "version: \"\x00\"\n", "agent.yaml:1: got a control character"},
		"1 MiB":                {minimal + strings.Repeat("#", 1<<20), "agent.yaml:1: got 1048627 bytes, want less than 1 MiB"},
		"deep in braces":       {lines + "limits: " + strings.Repeat("{a: ", 70) + strings.Repeat("}", 70) + "\n", "agent.yaml:4: "},
		"deep in blocks":       {lines + deep(70), "agent.yaml:67: "},
		"an odd quote":         {lines + "version: \"3\n", "agent.yaml:4: not YAML"},
		"a colon in braces":    {lines + "limits: {user:ana: [1]}\n", `agent.yaml:4: not YAML: ',' or '}' must be specified (within braces a key with a colon needs quotes: "user:ana")`},
		"a list":               {"- name: clerk\n", "agent.yaml:1: got a list, want a mapping"},
		"a text":               {"clerk\n", "agent.yaml:1: got a string, want a mapping"},
		"a key that is a list": {lines + "[a, b]: 1\n", "agent.yaml:4: "},
		"a key that is none":   {lines + "1: 1\n", "agent.yaml:4: "},
		"an explicit key":      {lines + "? limits\n: {usd: 1}\n", "agent.yaml:"},
		"a directive":          {"%YAML 1.2\n---\n" + lines, "agent.yaml:"},
		"nothing":              {"", "agent.yaml:1: got nothing, want a mapping"},
		"a comment alone":      {"# name: clerk\n", "agent.yaml:1: got nothing, want a mapping"},
		"an empty document":    {"name: a\n---\n", "agent.yaml:2: got a second document, want one"},
		"many problems":        {strings.Repeat("k: v\n", 20_000), "agent.yaml:2: k: got the key a second time"},
		"deep flow":            {"name: " + strings.Repeat("[", 5_000), tooMuch},
		"deep lists":           {strings.Repeat("- ", 5_000), tooMuch},
		"deep keys":            {strings.Repeat("? ", 5_000), tooMuch},
		"too many":             {"name: [" + strings.Repeat("1,", 100_000) + "]", tooMuch},
	} {
		_, err := Parse("agent.yaml", []byte(c.in), opt)
		require.Error(t, err, name)
		requireProblems(t, err)
		require.Contains(t, "\n"+err.Error(), "\n"+c.want, name)
	}
}

func deep(levels int) string {
	var b strings.Builder
	for i := range levels {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
