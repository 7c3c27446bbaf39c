package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
)

// folder is a root with tools on it, and a place outside that must stay as it is.
type folder struct {
	t       testing.TB
	root    string
	outside string
	set     *Set
}

func newFolder(t testing.TB) folder {
	t.Helper()
	top := t.TempDir()
	f := folder{t: t, root: filepath.Join(top, "folder"), outside: filepath.Join(top, "outside")}
	for _, dir := range []string{f.root, f.outside} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(f.outside, "secret.txt"), []byte("secret"), 0o644))
	tools, err := Builtin()
	require.NoError(t, err)
	f.set, err = NewSet(tools...)
	require.NoError(t, err)
	return f
}

// write makes a file and the folders it is in.
func (f folder) write(name, content string) {
	f.t.Helper()
	p := filepath.Join(f.root, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(f.t, os.WriteFile(p, []byte(content), 0o644))
}

func (f folder) link(target, name string) {
	f.t.Helper()
	require.NoError(f.t, os.Symlink(target, filepath.Join(f.root, name)))
}

func (f folder) call(name string, args any) agent.ToolResultData {
	f.t.Helper()
	r, err := f.try(f.t.Context(), name, args)
	require.NoError(f.t, err)
	return r
}

func (f folder) try(ctx context.Context, name string, args any) (agent.ToolResultData, error) {
	f.t.Helper()
	raw, err := json.Marshal(args)
	require.NoError(f.t, err)
	tl, ok := f.set.Lookup(name)
	require.True(f.t, ok)
	return tl.Call(ctx, Call{Root: f.root, Name: name, Args: raw})
}

func (f folder) reconcile(source, destination string) (Outcome, string) {
	f.t.Helper()
	raw, err := json.Marshal(moveInput{source, destination})
	require.NoError(f.t, err)
	tl, _ := f.set.Lookup("move_file")
	outcome, r, err := tl.(Reconciler).Reconcile(f.t.Context(), Call{Root: f.root, Args: raw})
	require.NoError(f.t, err)
	return outcome, r.Content
}

// tree is every path under the root with the content of the files, and what is outside.
func (f folder) tree() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for _, top := range []string{f.root, f.outside} {
		require.NoError(f.t, filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(p, filepath.Dir(top))
			out[name] = d.Type().String()
			if d.Type().IsRegular() {
				b, err := os.ReadFile(p)
				out[name] = string(b)
				return err
			}
			return nil
		}))
	}
	return out
}

type pathArg struct {
	Path string `json:"path"`
}

func TestSpecs(t *testing.T) {
	var got []string
	for _, s := range newFolder(t).set.Specs() {
		got = append(got, fmt.Sprintf("%s %s %s", s.Name, s.Effect, s.Kind))
	}
	require.Equal(t, []string{"list_directory read internal", "read_text read internal", "move_file non_idempotent internal", "extract_text read internal"}, got)
	for name, want := range map[string]bool{"list_directory": false, "read_text": false, "move_file": true} {
		tl, _ := newFolder(t).set.Lookup(name)
		_, ok := tl.(Reconciler)
		require.Equal(t, want, ok, name)
	}
}

func TestRootIsAbsoluteAndOpenedPerCall(t *testing.T) {
	f := newFolder(t)
	relative := f
	relative.root = "inbox"
	_, err := relative.try(t.Context(), "read_text", pathArg{"a.txt"})
	require.ErrorContains(t, err, `root "inbox" of the file tools is not an absolute path`)
	relative.root = ""
	require.Contains(t, relative.call("read_text", pathArg{"a.txt"}).Content, "read_text is confined to no folder")

	t.Chdir(t.TempDir())
	f.write("a.txt", "one")
	require.Equal(t, Text("one"), f.call("read_text", pathArg{"a.txt"}))
	require.NoError(t, os.RemoveAll(f.root))
	_, err = f.try(t.Context(), "read_text", pathArg{"a.txt"})
	require.EqualError(t, err, "open root of the file tools: no such file or directory", "and it does not say where it is")
	f.write("a.txt", "two")
	require.Equal(t, Text("two"), f.call("read_text", pathArg{"a.txt"}))
}

// Every path that could leave the folder is refused by every tool, as source and as destination, with an answer for the model.
func TestNothingLeavesTheFolder(t *testing.T) {
	f := newFolder(t)
	f.write("ok.txt", "ok")
	f.write("sub/in.txt", "in")
	f.link("../outside", "out")
	f.link("../outside/secret.txt", "leak.txt")
	f.link(filepath.Join(f.root, "sub"), "absolute")
	f.link("../../outside", "sub/up")
	f.link("loop", "loop")
	const leads = "goes through a symbolic link that leads outside of the folder or in a circle"
	const tooLong = "is too long"
	for path, want := range map[string]string{
		"":                               "the path is empty",
		"/etc/passwd":                    "is absolute",
		"//etc/passwd":                   "is absolute",
		filepath.Join(f.outside, "x"):    "is absolute",
		"..":                             "could lead outside",
		"../outside/secret.txt":          "could lead outside",
		"sub/../../outside/secret.txt":   "could lead outside",
		"sub/..":                         "could lead outside",
		"./../outside":                   "could lead outside",
		"out/secret.txt":                 leads,
		"sub/up/secret.txt":              leads,
		"absolute/in.txt":                leads,
		"loop/x":                         leads,
		"a\x00b":                         "has control characters",
		"a\nb":                           "has control characters",
		"a\u0085b":                       "has control characters",
		"gpj.\u202Etxt":                  "has control characters",
		strings.Repeat("n", 256):         tooLong,
		strings.Repeat("n/", 2049) + "n": tooLong,
	} {
		t.Run(clipName(quotePath(path)), func(t *testing.T) {
			before := f.tree()
			for name, r := range map[string]agent.ToolResultData{
				"read":             f.call("read_text", pathArg{path}),
				"move from":        f.call("move_file", moveInput{path, "moved.txt"}),
				"move to":          f.call("move_file", moveInput{"ok.txt", path}),
				"move to under it": f.call("move_file", moveInput{"ok.txt", path + "/x"}),
			} {
				require.True(t, r.IsError, name)
				if name != "move to under it" {
					require.Contains(t, r.Content, want, name)
				}
				if !strings.HasPrefix(path, f.outside) {
					require.NotContains(t, r.Content, filepath.Dir(f.root), "%s tells where the folder is", name)
				}
			}
			if path != "" { // the default
				require.True(t, f.call("list_directory", pathArg{path}).IsError)
			}
			require.Equal(t, before, f.tree())
		})
	}
	for _, path := range []string{"out", "leak.txt", "absolute", "sub/up", "loop"} {
		for _, r := range []agent.ToolResultData{f.call("read_text", pathArg{path}), f.call("list_directory", pathArg{path})} {
			require.True(t, r.IsError)
			require.Contains(t, r.Content, leads)
		}
		require.Equal(t, Errorf("%q is a symbolic link, not a file", path), f.call("move_file", moveInput{path, "moved"}))
		require.Contains(t, f.call("move_file", moveInput{"ok.txt", path}).Content, "already exists")
	}
}

func TestLinksThatStayInsideAreFollowed(t *testing.T) {
	f := newFolder(t)
	f.write("sub/a.txt", "a")
	f.write("b.txt", "b")
	f.link("sub", "alias")
	f.link("../b.txt", "sub/b.txt")
	require.Equal(t, Text("a"), f.call("read_text", pathArg{"alias/a.txt"}))
	require.Equal(t, Text("b"), f.call("read_text", pathArg{"alias/b.txt"}))
	require.Equal(t, Text("file 1 a.txt\nlink - b.txt"), f.call("list_directory", pathArg{"alias"}))
	require.Equal(t, Text(`Moved "b.txt" to "alias/c.txt".`), f.call("move_file", moveInput{"b.txt", "alias/c.txt"}))
	require.Equal(t, "b", f.tree()["/folder/sub/c.txt"])
	require.Contains(t, f.call("read_text", pathArg{"sub/b.txt"}).Content, "does not exist", "a dangling link")
}

// Whatever the path, what is read is never what is outside, and an accepted path is local and clean.
func FuzzPath(fz *testing.F) {
	for _, seed := range []string{"out/secret.txt", "a/../../outside/secret.txt", "./ok.txt", "sub/up/secret.txt", "..", "\x00", "ok.txt/", "%2e%2e/outside"} {
		fz.Add(seed)
	}
	f := newFolder(fz)
	f.write("ok.txt", "ok")
	require.NoError(fz, os.Mkdir(filepath.Join(f.root, "sub"), 0o755))
	f.link("../outside", "out")
	f.link("../../outside", "sub/up")
	r := Root(f.root)
	fz.Fuzz(func(t *testing.T, path string) {
		if clean, err := checkPath(path); err == nil {
			require.True(t, filepath.IsLocal(clean))
			again, err := checkPath(clean)
			require.NoError(t, err)
			require.Equal(t, clean, again)
		}
		text, err := r.read(t.Context(), readInput{Path: path})
		require.True(t, err == nil && text == "ok" || errors.As(err, new(Refusal)), "%q: %q, %v", path, text, err)
	})
}

// What is in a store directory approves calls: no tool touches it.
func TestStoreDirectoriesAreClosed(t *testing.T) {
	f := newFolder(t)
	for _, name := range []string{"a.txt", ".countersign/store.db", ".countersign/blobs/T/x", ".countersign/secrets.yaml"} {
		f.write(name, "x")
	}
	for _, r := range []agent.ToolResultData{
		f.call("read_text", pathArg{".countersign/secrets.yaml"}), f.call("list_directory", pathArg{".countersign/blobs"}),
		f.call("extract_text", pathArg{".countersign/secrets.yaml"}),
		f.call("move_file", moveInput{".countersign/secrets.yaml", "b.txt"}), f.call("move_file", moveInput{"a.txt", ".countersign/token"}),
	} {
		require.True(t, r.IsError)
		require.Contains(t, r.Content, "is closed to file tools")
	}
	require.Equal(t, Text("x"), f.call("read_text", pathArg{"a.txt"}))
}

func TestReadText(t *testing.T) {
	f := newFolder(t)
	f.write("a.txt", "héllo")
	f.write("empty", "")
	f.write("null", "a\x00b")
	f.write("latin1", "caf\xe9 au lait")
	f.write("truncated", "caf\xc3")
	f.write("large", strings.Repeat("x", maxRead)+"the rest")
	f.write("full", strings.Repeat("y", maxRead))
	f.write("dir/x", "")
	for name, tc := range map[string]struct {
		in   readInput
		want agent.ToolResultData
	}{
		"whole":              {readInput{Path: "a.txt"}, Text("héllo")},
		"unclean path":       {readInput{Path: ".//a.txt"}, Text("héllo")},
		"first bytes":        {readInput{Path: "a.txt", Limit: 3}, Text("hé\n(bytes 0 to 3 of 6 shown, go on with offset 3)")},
		"half a character":   {readInput{Path: "a.txt", Limit: 2}, Text("h\n(bytes 0 to 1 of 6 shown, go on with offset 1)")},
		"only a character":   {readInput{Path: "a.txt", Offset: 1, Limit: 1}, Text("é\n(bytes 1 to 3 of 6 shown, go on with offset 3)")},
		"from its middle":    {readInput{Path: "a.txt", Offset: 2, Limit: 1}, Text("l\n(bytes 3 to 4 of 6 shown, go on with offset 4)")},
		"the end":            {readInput{Path: "a.txt", Offset: 3}, Text("llo\n(bytes 3 to 6 of 6, the end)")},
		"past the end":       {readInput{Path: "a.txt", Offset: 7}, Errorf(`offset 7 is beyond the end: "a.txt" has 6 bytes`)},
		"empty":              {readInput{Path: "empty"}, Text("(the file is empty)")},
		"null byte":          {readInput{Path: "null"}, Errorf(`"null" looks binary: it is not UTF-8 text`)},
		"other encoding":     {readInput{Path: "latin1"}, Errorf(`"latin1" looks binary: it is not UTF-8 text`)},
		"cut in a character": {readInput{Path: "truncated"}, Errorf(`"truncated" looks binary: it is not UTF-8 text`)},
		"over the cap":       {readInput{Path: "large"}, Text(strings.Repeat("x", maxRead) + "\n(bytes 0 to 262144 of 262152 shown, go on with offset 262144)")},
		"at the cap":         {readInput{Path: "full"}, Text(strings.Repeat("y", maxRead))},
		"limit too large":    {readInput{Path: "a.txt", Limit: maxRead + 1}, Errorf("The arguments of read_text do not fit:\nat /limit: must be at most 262144, is 262145")},
		"missing":            {readInput{Path: "b.txt"}, Errorf(`"b.txt" does not exist`)},
		"other case":         {readInput{Path: "A.TXT"}, Errorf(`"A.TXT" does not exist`)},
		"folder":             {readInput{Path: "dir"}, Errorf(`"dir" is a folder, not a file`)},
		"under a file":       {readInput{Path: "a.txt/x"}, Errorf(`"a.txt/x" does not exist: a part of the path is a file, not a folder`)},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, f.call("read_text", tc.in)) })
	}
}

// Read piece by piece, from offset to offset as the notices say, any text comes back whole.
func TestReadingOnReturnsTheWholeText(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.StringOfN(rapid.RuneFrom([]rune("aé€😀\n")), 1, 40, -1).Draw(rt, "text")
		limit := rapid.IntRange(1, 12).Draw(rt, "limit")
		name := filepath.Join(dir, "f")
		require.NoError(rt, os.WriteFile(name, []byte(want), 0o600))
		file, err := os.Open(name)
		require.NoError(rt, err)
		defer file.Close()
		var got strings.Builder
		for offset, last := int64(0), false; !last; {
			w, err := readWindow(file, offset, limit)
			require.NoError(rt, err)
			require.True(rt, utf8.Valid(w.text))
			require.Equal(rt, offset, w.start)
			require.NotEmpty(rt, w.text)
			require.LessOrEqual(rt, len(w.text), max(limit, utf8.UTFMax))
			got.Write(w.text)
			offset, last = w.start+int64(len(w.text)), w.last
		}
		require.Equal(rt, want, got.String())
	})
}

func TestListDirectory(t *testing.T) {
	f := newFolder(t)
	require.Equal(t, Text(`"." is empty.`), f.call("list_directory", struct{}{}))
	f.write("b.txt", "12345")
	f.write("B.txt", "1")
	f.write("a folder/x", "")
	f.write("Screenshot 10.15\u202FAM.png", "")
	f.write("e\u0301.txt", "decomposed")
	f.write("\u00e9.txt", "composed")
	f.write("two\nlines", "")
	f.write("gpj.\u202Etxt", "")
	f.write("latin\xe9", "")
	f.write(strings.Repeat("n", 255), "")
	f.link("../outside", "out")
	want := strings.Join([]string{
		"file 1 B.txt",
		"file 0 Screenshot 10.15\u202FAM.png",
		"folder - a folder",
		"file 5 b.txt",
		"file 10 e\u0301.txt",
		`file 0 "gpj.\u202etxt"`,
		`file 0 "latin\xe9"`,
		"file 0 " + strings.Repeat("n", 255),
		"link - out",
		`file 0 "two\nlines"`,
		"file 8 \u00e9.txt",
	}, "\n")
	for _, args := range []any{struct{}{}, pathArg{"."}, pathArg{"./"}} {
		require.Equal(t, Text(want), f.call("list_directory", args))
	}
	require.Equal(t, Text("file 0 x"), f.call("list_directory", pathArg{"a folder/"}))
	require.Equal(t, Errorf(`"b.txt" is not a folder`), f.call("list_directory", pathArg{"b.txt"}))
	require.Equal(t, Errorf(`"nowhere" does not exist`), f.call("list_directory", pathArg{"nowhere"}))
	require.Equal(t, Text("decomposed"), f.call("read_text", pathArg{"e\u0301.txt"}))
	require.Equal(t, Text("composed"), f.call("read_text", pathArg{"\u00e9.txt"}))
}

func TestListingIsCappedAndSaysSo(t *testing.T) {
	f := newFolder(t)
	for i := range maxListed + 3 {
		f.write(fmt.Sprintf("%04d", i), "")
	}
	lines := strings.Split(f.call("list_directory", struct{}{}).Content, "\n")
	require.Len(t, lines, maxListed+1)
	require.Equal(t, "file 0 0999", lines[maxListed-1])
	require.Equal(t, "(1000 of 1003 entries shown)", lines[maxListed])
}
