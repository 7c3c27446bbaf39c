package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	oddRun      = "raaaaaaaaaaaaaaaaaaaaaaaaa"
	oddApproval = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// goodLines are command lines whose form is right, by command; DIR is a folder with an agent and a scenario. A command that is not here fails the
// test.
var goodLines = map[string][]string{
	"run": {"DIR", "--message", "x"}, "runs": nil, "show": {oddRun}, "events": {oddRun}, "approvals": nil, "approve": {oddApproval}, "deny": {oddApproval},
	"ask":         {oddApproval, "--note", "x"},
	"grants list": nil, "grants revoke": {"clerk", "mail"}, "delete": {oddRun, "--yes"}, "doctor": nil, "mcp lock": nil, "audit verify": nil, "export": nil,
	"answer": {oddRun, "c1", "--rerun"}, "send": {oddRun, "--message", "x"}, "cancel": {oddRun}, "resume": nil, "undo": {oddRun, "c1"},
	"fork": {oddRun, "--at", "1"}, "audit replay": {oddRun}, "dev": {"--addr", "127.0.0.1:0"}, "test": {"DIR/good.txtar"}, "validate": {"DIR"},
	"init": {"DIR/new", "--replace", "../../.."}, "people import": {"DIR/people.json"}, "rehearse": nil,
}

// badValues are values that a flag or an argument does not take, and what is said of each, by command and name. Of a flag that takes any text, there
// are none: "". One that is not here fails the test.
var badValues = map[string]map[string]string{
	"run <agent>":   {"nowhere": "unknown agent nowhere", "DIR/broken.yaml": "broken.yaml:1: colour: got an unknown key", "DIR/empty": "read agent: ", "DIR/binary": "got a control character"},
	"run --input":   {"{": "--input: json at offset", "@DIR/none.json": "no such file", "@DIR": "is a directory", "": "got nothing, want a value"},
	"run --message": {"": "got nothing, want a value"}, "run --attach": {"DIR/none.png": "no such file", "DIR": "DIR: ", "": "--attach: got nothing, want a value"}, "run --key": {"": "got nothing, want a value", "a\xffb": `"a\xffb": want UTF-8`},
	"run --continue": {"": "got nothing, want a value"},
	"run --model":    {"psychic": `got "psychic", want script:FILE`, "script:none.jsonl": "none.jsonl: no such file", "openai:m@localhost:11434/v1": `got "localhost:11434/v1" behind the @ of openai:m, want a URL`}, "run --dir": {"nowhere": "nowhere is not a directory", "DIR/agent.yaml": "agent.yaml is not a directory"},
	"run --yes": {"=x": "bool value must be"}, "run --no": {"=x": "bool value must be"},
	"runs --status": {"odd": `--status: got "odd", want running, waiting or done`}, "runs --agent": nil, "runs --root": nil, "runs --repaired": {"=x": "bool value must be"},
	"people import <file>": {"DIR/none.json": "no such file", "DIR": "is a directory"},
	"show <run>":           {"r1": "nothing has run there yet"}, "show --messages": {"=x": "bool value must be"},
	"events <run>": {"r1": "nothing has run there yet"}, "events --after": {"x": "--after: ", "1.5": "--after: "}, "events --follow": {"=x": "bool value must be"}, "events --format": {"xml": "--format: got"},
	"approvals --status": {"odd": `--status: got "odd"`}, "approvals --run": nil, "approvals --root": nil,
	"approve <id>": nil, "approve --edit": {"{": "--edit: json at offset", "@DIR/none.json": "no such file"}, "approve --result": {"{": "--result: json at offset"},
	"approve --digest": nil, "approve --note": nil, "approve --tool": nil, "approve --grant-when": {"amount": "--grant-when: "}, "approve --grant-uses": {"x": "--grant-uses: ", "-1": "--grant-uses: got -1, want more than zero", "0": "--grant-uses: got 0, want more than zero"},
	"approve --grant-for": {"soon": `--grant-for: got "soon", want a duration`, "0s": `--grant-for: got "0s", want a duration`},
	"deny <id>":           nil, "deny --note": nil, "deny --tool": nil, "ask <id>": nil, "ask --note": nil,
	"grants list --agent":   {"Clerk!": `--agent: got "Clerk!", want an agent's name`},
	"grants revoke <agent>": {"Clerk!": `revoke: got "Clerk!", want an agent's name`}, "grants revoke <tool>": {"a b": `revoke: got "a b", want a tool's original name`}, "grants revoke --digest": nil,
	"mcp lock --dir": {"nowhere": "there is no agent.yaml in nowhere", "DIR/empty": "there is no agent.yaml in "}, "mcp lock --check": {"=x": "bool value must be"},
	"audit verify <file>": {"DIR/none.jsonl": "no such file"}, "audit verify --head": {"abc": `--head: got "abc", want the hash of an entry`},
	"export <run>": nil, "export --out": nil, "export --test": {"=x": "bool value must be"}, "export --redact": {"=x": "bool value must be"},
	"export --deployed": {"=x": "bool value must be"}, "export --tenant": nil,
	"answer <run>": nil, "answer <call>": nil, "answer --result": {"{": "--result: json at offset"}, "answer --error": nil, "answer --rerun": {"=x": "bool value must be"},
	"send <run>": nil, "send --message": nil, "send --attach": {"DIR/none.png": "no such file"}, "cancel <run>": nil, "cancel --note": nil, "undo <run>": nil, "undo <call>": nil,
	"fork <run>": nil, "fork --at": {"x": "--at: ", "-1": "fork: want --at SEQ, an entry of the run, from 0"}, "fork --model": {"psychic": `got "psychic", want script:FILE`}, "fork --key": nil, "audit replay <run>": nil,
	"dev --addr": {"8420": `--addr: got "8420", want HOST:PORT`, "127.0.0.1:http": `--addr: got port "http"`, ":0": "others can reach",
		"0.0.0.0:1": "--insecure-listen", "example.com:0": "--insecure-listen", "127.0.0.1:99999": "want 0 to 65535"}, "dev --insecure-listen": {"=x": "bool value must be"},
	"test <file>": {"DIR/none.txtar": "read scenarios: ", "DIR/empty": "there is none in", "DIR/bad.txtar": "bad.txtar:"}, "test --crash": {"=x": "bool value must be"},
	"rehearse <run>": nil, "rehearse --agent": {"nowhere": "unknown agent nowhere", "DIR/broken.yaml": "broken.yaml:1: colour: got an unknown key"},
	"delete <run>": nil, "delete --yes": {"=x": "bool value must be"}, "delete --deployed": {"=x": "bool value must be"}, "delete --tenant": nil,
	"doctor --stack": {"": "got nothing, want a value"}, "doctor --tenant": {"": "got nothing, want a value", "x": "--tenant: want it with --stack"},
	"rehearse --deployed": {"=x": "bool value must be"}, "rehearse --tenant": nil,
	"validate --graph": {"=x": "bool value must be"}, "validate --schema": {"=x": "bool value must be"}, "validate <agent>": {"nowhere": "unknown agent nowhere", "DIR/broken.yaml": "broken.yaml:1: colour: got an unknown key"}, "init <dir>": {"DIR/full": "/full has go.mod: want a folder without", "DIR/Odd_Name": `got "Odd_Name", want a last element`},
	"init --module": {"a b": "malformed import path", "example.com/Odd": `got "example.com/Odd", want a last element`},
	"init --model":  {"psychic": `--model: got "psychic", want openai:MODEL@BASE_URL`, "script:DIR/model.jsonl": "--model: got "}, "init --replace": {"nowhere": "nowhere is no checkout of"},
	"--home": {"": "got nothing, want a value"}, "--json": {"=x": "bool value must be"}, "--version": {"=x": "bool value must be"}, "--as": {"ana": `--as: parse principal "ana"`, "": "got nothing, want a value"},
}

// argTester runs command lines in a folder of its own, without a store.
type argTester struct {
	*harness
	home string
}

func newArgTester(t *testing.T) *argTester {
	t.Helper()
	good := "name: clerk\nsystem: Hi.\nmodel: {provider: script, file: model.jsonl}\n"
	x := &argTester{harness: newHarness(t, good, `{"text": "ok"}`+"\n")}
	x.home = x.harness.home()
	plain := strings.Replace(good, "model: {provider: script, file: model.jsonl}\n", "", 1)
	for name, text := range map[string]string{
		"broken.yaml": "colour: red\n", "empty/readme": "", "full/go.mod": "", "people.json": "{}", "binary": "\x00\x01", "bad.txtar": "-- agent.yaml --\ncolour: red\n",
		"good.txtar": "-- agent.yaml --\n" + plain + "-- input.json --\n{\"message\": \"x\"}\n-- model.jsonl --\n{\"text\": \"ok\"}\n" +
			"-- want.json --\n{\"status\": \"done\"}\n",
	} {
		x.write(name, text)
	}
	return x
}

// commandLine is a command line in parts.
type commandLine struct {
	words, args []string
	flags       []string // each with its value behind it, if it has one
}

// flagLines are arguments for flags that do not go with those of goodLines.
var flagLines = map[string][]string{"run --input": {"DIR"}, "run --message": {"DIR"}, "answer --result": {oddRun, "c1"}, "answer --error": {oddRun, "c1"}}

func (x *argTester) validLine(command, flag string) commandLine {
	l := commandLine{words: strings.Fields(command)}
	good := goodLines[command]
	if other, ok := flagLines[command+" "+flag]; ok {
		good = other
	}
	for i, a := range good {
		if a = strings.ReplaceAll(a, "DIR", x.dir); strings.HasPrefix(a, "--") || len(l.flags) > 0 && !strings.HasPrefix(good[i], "DIR") {
			l.flags = append(l.flags, a)
		} else {
			l.args = append(l.args, a)
		}
	}
	if i := slices.Index(l.flags, flag); i >= 0 {
		l.flags = slices.Delete(slices.Clone(l.flags), i, i+2)
	}
	return l
}

func (l commandLine) with(more ...string) []string {
	return slices.Concat(l.words, l.args, l.flags, more)
}

func (l commandLine) arg(i int, value string) []string {
	args := slices.Clone(l.args)
	for len(args) <= i {
		args = append(args, "")
	}
	args[i] = value
	l.args = args
	return l.with()
}

func (x *argTester) run(args ...string) (code int, stdout, stderr string) {
	x.t.Helper()
	p, who := x.newProgram("")
	p.storeTimeout = time.Millisecond
	ctx, cancel := context.WithTimeout(x.t.Context(), 20*time.Second)
	defer cancel()
	code = p.run(ctx, args)
	return code, who.stdout.String(), who.stderr.String()
}

// requireRefused requires exit code 2, one error message, and that nothing was created.
func (x *argTester) requireRefused(want string, args ...string) {
	x.t.Helper()
	code, stdout, stderr := x.run(args...)
	assert.Equal(x.t, 2, code, "%q\n%s%s", args, stdout, stderr)
	assert.Contains(x.t, stdout+stderr, strings.ReplaceAll(want, "DIR", x.dir), "%q", args)
	assert.NotContains(x.t, stderr, "goroutine ")
	_, err := os.Stat(x.home)
	assert.ErrorIs(x.t, err, fs.ErrNotExist, "%q has made a store", args)
	require.NoError(x.t, os.RemoveAll(x.home))
}

func leafCommands(t *testing.T) []*kong.Node {
	t.Helper()
	var g grammar
	k, err := kong.New(&g)
	require.NoError(t, err)
	return k.Model.Leaves(true) // audit export is export
}

// TestEveryCommandRefuses: every command, flag and argument of the grammar, with what it does not take. Nothing is written, whatever is wrong.
func TestEveryCommandRefuses(t *testing.T) {
	x := newArgTester(t)
	met, cases := map[string]bool{}, 0
	refused := func(want string, args []string) { cases++; x.requireRefused(want, args...) }
	refuses := func(name string, line func(value string) []string) {
		values, known := badValues[name]
		require.True(t, known, "%s has no cases: say in badValues what it does not take", name)
		met[name] = true
		for value, want := range values {
			refused(want, line(strings.ReplaceAll(value, "DIR", x.dir)))
		}
	}
	for _, n := range leafCommands(t) {
		command := n.Path()
		_, known := goodLines[command]
		require.True(t, known, "%s has no cases: say in goodLines how it is called", command)
		refused("unknown flag --zzz; see countersign "+command+" --help", x.validLine(command, "").with("--zzz"))
		more := len(n.Positional) == 0
		for i, p := range n.Positional {
			if p.Required {
				l := x.validLine(command, "")
				l.args = l.args[:i]
				refused(" "+command+" --help", l.with())
			}
			refused("<"+p.Name+">: got nothing, want a value; see countersign "+command+" --help", x.validLine(command, "").arg(i, ""))
			more = p.Required && p.Target.Kind() != reflect.Slice
			refuses(command+" <"+p.Name+">", func(value string) []string { return x.validLine(command, "").arg(i, value) })
		}
		if more {
			l := x.validLine(command, "")
			refused("unexpected argument zzz", l.arg(len(l.args), "zzz"))
		}
		for _, f := range flagsOf(n) {
			name, flag := command+" --"+f.Name, "--"+f.Name
			if everywhere := slices.Contains([]string{"home", "json", "as", "version"}, f.Name); everywhere {
				name = flag
			}
			refuses(name, func(value string) []string {
				if f.IsBool() {
					return x.validLine(command, "").with(flag + value)
				}
				return x.validLine(command, flag).with(flag, value)
			})
			if !f.IsBool() {
				refused(flag, x.validLine(command, flag).with(flag))
			}
		}
	}
	for name := range badValues {
		require.True(t, met[name], "%s is no flag or argument any more", name)
	}
	t.Logf("%d commands, %d flags and arguments, %d cases", len(goodLines), len(met), cases)
}

func flagsOf(n *kong.Node) []*kong.Flag {
	var all []*kong.Flag
	for _, group := range n.AllFlags(false) {
		for _, f := range group {
			if f.Name != "help" {
				all = append(all, f)
			}
		}
	}
	return all
}

// writes are the commands that make the store where there is none.
var writes = []string{"run", "dev"}

// A command that looks, or that does something to what is there, makes no store.
func TestNoStoreIsMadeToLookInto(t *testing.T) {
	x := newArgTester(t)
	for _, n := range leafCommands(t) {
		if slices.Contains(writes, n.Path()) {
			continue
		}
		code, stdout, stderr := x.run(x.validLine(n.Path(), "").with()...)
		assert.Contains(t, []int{0, 2}, code, "%s: %s%s", n.Path(), stdout, stderr)
		_, err := os.Stat(x.home)
		assert.ErrorIs(t, err, fs.ErrNotExist, "%s has made a store", n.Path())
		require.NoError(t, os.RemoveAll(x.home))
	}
}

// storeCommands returns the commands that open the store.
func storeCommands(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, n := range leafCommands(t) {
		if !slices.Contains([]string{"mcp lock", "people import", "test", "validate", "init"}, n.Path()) {
			all = append(all, n.Path())
		}
	}
	return all
}

// A store that cannot be opened is told by its name, by every command, and left as it is.
func TestBadStores(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, home string)
		want string
	}{
		"a file": {func(t *testing.T, home string) { require.NoError(t, os.WriteFile(home, []byte("mine"), 0o600)) }, "home"},
		"below a file": {func(t *testing.T, home string) {
			require.NoError(t, os.Remove(home))
			require.NoError(t, os.Symlink(filepath.Join(filepath.Dir(home), "agent.yaml", "x"), home))
		}, "home"},
		"no store": {writeInHome("store.db", "mine\n"), "store.db: not a store, or damaged"},
		"cut off":  {writeInHome("store.db", "\x00"), "store.db: "},
		"emptied, beside blobs": {func(t *testing.T, home string) {
			writeInHome("store.db", "")(t, home)
			require.NoError(t, os.MkdirAll(filepath.Join(home, "blobs"), 0o700))
		}, "store.db: the file is empty, and beside it there is blobs of an earlier store"},
		"emptied, beside a token": {func(t *testing.T, home string) {
			writeInHome("store.db", "")(t, home)
			writeInHome("token", strings.Repeat("a", 52))(t, home)
		}, "store.db: the file is empty, and beside it there is token of an earlier store"},
		"a folder": {func(t *testing.T, home string) {
			require.NoError(t, os.MkdirAll(filepath.Join(home, "store.db"), 0o700))
		}, "store.db: not a regular file"},
		"blobs a file":   {writeInHome("blobs", "mine"), "blobs"},
		"people":         {writeInHome("principals.yaml", "peolpe: {}\n"), "principals.yaml:1: peolpe: got an unknown key, want one of default, people, slack; did you mean people?"},
		"people twice":   {writeInHome("principals.yaml", "people: {}\npeople: {}\n"), "principals.yaml:2: people: got the key a second time"},
		"people aliased": {writeInHome("principals.yaml", "people: &a {}\n"), "principals.yaml:1: people: got an anchor or alias"},
		"nobody there":   {writeInHome("principals.yaml", "default: user:ana\n"), "principals.yaml:1: default: user:ana is not among the people"},
		"no text":        {writeInHome("principals.yaml", "default: [user:ana]\n"), "principals.yaml:1: default: want user:NAME"},
		"people inline":  {writeInHome("principals.yaml", "people: {user:ana: [group:operators]}\n"), `principals.yaml:1: not YAML: ',' or '}' must be specified (within braces a key with a colon needs quotes: "user:ana")`},
		"people a list":  {writeInHome("principals.yaml", "people: [user:ana]\n"), "principals.yaml:1: people: want a mapping"},
		"not UTF-8":      {writeInHome("principals.yaml", "people: \xff\n"), "principals.yaml:1: got bytes that are not UTF-8"},
		"people a folder": {func(t *testing.T, home string) {
			require.NoError(t, os.MkdirAll(filepath.Join(home, "principals.yaml"), 0o700))
		}, "principals.yaml: is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newArgTester(t)
			require.NoError(t, os.MkdirAll(x.home, 0o700))
			if name == "a file" {
				require.NoError(t, os.Remove(x.home))
			}
			c.make(t, x.home)
			before := readFolder(t, x.dir)
			for _, command := range storeCommands(t) {
				code, stdout, stderr := x.run(x.validLine(command, "").with()...)
				if command == "audit verify" && code == 0 {
					continue
				}
				if command == "doctor" { // it prints what it finds
					assert.Equal(t, 1, code, stdout)
					assert.Contains(t, stdout, c.want)
					continue
				}
				if command == "rehearse" && strings.HasPrefix(c.want, "principals.yaml") { // nobody is asked
					continue
				}
				assert.Contains(t, []int{1, 2}, code, "%s: %s%s", command, stdout, stderr)
				assert.Contains(t, stderr, c.want, command)
				assert.Empty(t, stdout, command)
				assert.NotContains(t, stderr, "goroutine ")
			}
			for file, data := range before {
				after, err := os.ReadFile(file)
				if data != "" {
					require.NoError(t, err)
					require.Equal(t, data, string(after), file)
				}
			}
		})
	}
}

func writeInHome(name, text string) func(t *testing.T, home string) {
	return func(t *testing.T, home string) {
		require.NoError(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
	}
}

// readFolder returns the files below a folder with their contents.
func readFolder(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			all[path] = string(data)
			return err
		}
		return err
	}))
	return all
}

// fullWriter is a standard output without space.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// Who reads the exit code is not told that all was said when it was not.
func TestStandardOutputThatIsFull(t *testing.T) {
	x := newArgTester(t)
	for _, args := range [][]string{{"runs"}, {"runs", "--json"}, {"validate", "--graph"}, {"run", x.dir, "--message", "x"}, {"approvals"}, {"audit", "verify"}, {"validate", x.dir}, {"test", x.dir + "/good.txtar"}} {
		p, who := x.newProgram("")
		p.stdout = fullWriter{}
		require.Equal(t, 1, p.run(t.Context(), append([]string{"--home", x.home}, args...)), args)
		require.Contains(t, who.stderr.String(), "countersign: write the answer: no space left on device", args)
	}
}

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"plain-1.2/x": "plain-1.2/x", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a\nb": "'a\nb'",
	} {
		require.Equal(t, want, quoteShell(in))
	}
}

// --dir is where an agent's tools work, those of the programs that are its servers as well; a server that is somewhere else
// has no folder. What a command line says of a registered agent is for that command alone.
func TestDirIsForProgramsToo(t *testing.T) {
	agents, dir, r := t.TempDir(), t.TempDir(), testRegistry()
	file := filepath.Join(agents, "agent.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
name: tidy
system: You tidy.
model: {provider: demo, id: stand-in}
tools: [{name: extract_text, root: inbox}]
mcp:
  - {name: files, command: [mcp-server-filesystem, "."], dir: inbox}
  - {name: more, command: [mcp-server-filesystem, "."]}
  - {name: web, url: "https://files.example.com/mcp"}
`), 0o600))
	p := &program{registry: r}
	folders := func(of string, c agentOverrides) []string {
		d, err := p.loadAgent(of, c)
		require.NoError(t, err)
		return []string{d.Tools[0].Root, d.MCP[0].Dir, d.MCP[1].Dir, d.MCP[2].Dir}
	}
	inbox := filepath.Join(agents, "inbox")
	require.Equal(t, []string{inbox, inbox, agents, ""}, folders(file, agentOverrides{}))
	require.Equal(t, []string{dir, dir, dir, ""}, folders(file, agentOverrides{dir: dir}))
	registered, err := p.loadAgent(file, agentOverrides{})
	require.NoError(t, err)
	require.NoError(t, r.Add(*registered))
	require.Equal(t, []string{dir, dir, dir, ""}, folders("tidy", agentOverrides{dir: dir}))
	require.Equal(t, []string{inbox, inbox, agents, ""}, folders("tidy", agentOverrides{}))
}
