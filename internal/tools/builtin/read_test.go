package builtin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

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
		"whole":              {readInput{Path: "a.txt"}, tool.Text("héllo")},
		"unclean path":       {readInput{Path: ".//a.txt"}, tool.Text("héllo")},
		"first bytes":        {readInput{Path: "a.txt", Limit: 3}, tool.Text("hé\n(bytes 0 to 3 of 6 shown, go on with offset 3)")},
		"half a character":   {readInput{Path: "a.txt", Limit: 2}, tool.Text("h\n(bytes 0 to 1 of 6 shown, go on with offset 1)")},
		"only a character":   {readInput{Path: "a.txt", Offset: 1, Limit: 1}, tool.Text("é\n(bytes 1 to 3 of 6 shown, go on with offset 3)")},
		"from its middle":    {readInput{Path: "a.txt", Offset: 2, Limit: 1}, tool.Text("l\n(bytes 3 to 4 of 6 shown, go on with offset 4)")},
		"the end":            {readInput{Path: "a.txt", Offset: 3}, tool.Text("llo\n(bytes 3 to 6 of 6, the end)")},
		"past the end":       {readInput{Path: "a.txt", Offset: 7}, tool.Errorf(`offset 7 is beyond the end: "a.txt" has 6 bytes`)},
		"empty":              {readInput{Path: "empty"}, tool.Text("(the file is empty)")},
		"null byte":          {readInput{Path: "null"}, tool.Errorf(`"null" looks binary: it is not UTF-8 text`)},
		"other encoding":     {readInput{Path: "latin1"}, tool.Errorf(`"latin1" looks binary: it is not UTF-8 text`)},
		"cut in a character": {readInput{Path: "truncated"}, tool.Errorf(`"truncated" looks binary: it is not UTF-8 text`)},
		"over the cap":       {readInput{Path: "large"}, tool.Text(strings.Repeat("x", maxRead) + "\n(bytes 0 to 262144 of 262152 shown, go on with offset 262144)")},
		"at the cap":         {readInput{Path: "full"}, tool.Text(strings.Repeat("y", maxRead))},
		"limit too large":    {readInput{Path: "a.txt", Limit: maxRead + 1}, tool.Errorf("The arguments of read_text do not fit:\nat /limit: must be at most 262144, is 262145")},
		"missing":            {readInput{Path: "b.txt"}, tool.Errorf(`"b.txt" does not exist`)},
		"other case":         {readInput{Path: "A.TXT"}, tool.Errorf(`"A.TXT" does not exist`)},
		"folder":             {readInput{Path: "dir"}, tool.Errorf(`"dir" is a folder, not a file`)},
		"under a file":       {readInput{Path: "a.txt/x"}, tool.Errorf(`"a.txt/x" does not exist: a part of the path is a file, not a folder`)},
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
	require.Equal(t, tool.Text(`"." is empty.`), f.call("list_directory", struct{}{}))
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
		require.Equal(t, tool.Text(want), f.call("list_directory", args))
	}
	require.Equal(t, tool.Text("file 0 x"), f.call("list_directory", pathArg{"a folder/"}))
	require.Equal(t, tool.Errorf(`"b.txt" is not a folder`), f.call("list_directory", pathArg{"b.txt"}))
	require.Equal(t, tool.Errorf(`"nowhere" does not exist`), f.call("list_directory", pathArg{"nowhere"}))
	require.Equal(t, tool.Text("decomposed"), f.call("read_text", pathArg{"e\u0301.txt"}))
	require.Equal(t, tool.Text("composed"), f.call("read_text", pathArg{"\u00e9.txt"}))
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
