package agentfile

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the messages that testdata/bad.txtar should hold")

// badFile is a file and the messages it must get.
type badFile struct{ name, in, want string }

// badFiles reads testdata/bad.txtar: NAME.yaml, and the messages for it in NAME.txt.
func badFiles(t testing.TB) []badFile {
	archive, err := txtar.ParseFile("testdata/bad.txtar")
	require.NoError(t, err)
	var files []badFile
	for i := 0; i+1 < len(archive.Files); i += 2 {
		in, want := archive.Files[i], archive.Files[i+1]
		name := strings.TrimSuffix(in.Name, ".yaml")
		require.Equal(t, name+".txt", want.Name)
		files = append(files, badFile{name, string(in.Data), string(want.Data)})
	}
	require.NotEmpty(t, files)
	return files
}

func TestBadFiles(t *testing.T) {
	out := txtar.Archive{Comment: []byte("Files that are refused, each with all that is said about it. go test -update writes the messages; read the diff.\n")}
	for _, f := range badFiles(t) {
		_, err := Parse("agent.yaml", []byte(f.in), registered())
		require.Error(t, err, f.name)
		got := err.Error() + "\n"
		out.Files = append(out.Files, txtar.File{Name: f.name + ".yaml", Data: []byte(f.in)}, txtar.File{Name: f.name + ".txt", Data: []byte(got)})
		if !*update {
			require.Equal(t, f.want, got, f.name)
		}
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/bad.txtar", txtar.Format(&out), 0o644))
	}
}

// A secret in a wrong place is not repeated.
func TestMessagesKeepSecrets(t *testing.T) {
	const secret = "sk-canary-0123456789"
	for _, in := range []string{
		"name: {x: " + secret + "}\n", "name: " + secret + "\n", "system: [" + secret + "]\n", "model: " + secret + "\n",
		"model: {provider: openai, id: m, baseURL: \"https://u:" + secret + "@h\"}\n", "model: {apiKey: " + secret + "}\n", "model: {staticText: " + secret + "}\n",
		"model: {id: [" + secret + "]}\n", "permission: {approvers: [" + secret + "]}\n", "permission: {rules: [{tool: x, when: [{path: /a, gt: " + secret + "}]}]}\n",
		"permission: {rules: [{tool: x, when: [{path: /a, matches: \"(" + secret + "\"}]}]}\n", "stop: {contains: " + secret + "}\n", "mcp: [{name: a, env: {K: " + secret + "}}]\n",
		"name: \"" + secret + "\n", "a: b: " + secret + "\n", "name: !" + secret + " x\n",
	} {
		_, err := Parse("agent.yaml", []byte(in), Options{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret, in)
	}
}
