package repotest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// node runs a script of tools/template with what make deps has fetched. It skips, and says why, where that is not
// there.
func node(t *testing.T, script string, args ...string) (out string, err error) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node in PATH: the template's validators need it")
	}
	tools := filepath.Join(root, "tools/template")
	if _, err := os.Stat(filepath.Join(tools, "node_modules/asl-validator")); err != nil {
		t.Skip("tools/template is not installed; run npm ci in it, as make deps does")
	}
	b, err := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join(tools, script)},
		args...)...).CombinedOutput()
	return string(b), err
}

// spoiled writes a file of the project with one place of it changed.
func spoiled(t *testing.T, file string, pairs ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(b), "${Partition}", "aws")
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, text, pairs[i])
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// aside are rules of the validator that a resource or parameter is excused from.
var aside = []string{
	"F3033:TableThrottled", "F3033:TableErrors", // TableName is empty by default, and is not used then
	"F3033:StreamUrl",                                                          // nor is CorsOrigins
	"W2509:OpenAiSecret", "W2509:SlackTokenSecret", "W2509:SlackSigningSecret", // they hold a secret's name, not a secret
	"W2509:OidcClientSecret", // the same
}

// The validator accepts the template as it is, and finds what a broken one has.
func TestCloudFormationValidate(t *testing.T) {
	sound := filepath.Join(root, TemplateFile)
	broken := spoiled(t, TemplateFile,
		"TargetKeyId: !Ref DataKey", "TargetKeyId: !Ref Key",
		"EnableKeyRotation: true", "KeyRotation: true",
	)
	out, err := node(t, "validate.mjs", append([]string{sound + "," + broken}, aside...)...)
	require.NoError(t, err, out)
	require.NotContains(t, out, `"file":"`+sound+`"`)
	require.Contains(t, out, `"of":"DataKeyAlias"`)
	require.Contains(t, out, "KeyRotation")
}

// The validator accepts the state machine as it is, and refuses broken ones.
func TestASLValidator(t *testing.T) {
	sound := spoiled(t, MachineFile)
	args := []string{"--json-path", sound}
	var broken []string
	for old, replaced := range map[string]string{
		`"Next": "Tools"`:                `"Next": "Tool"`,
		`"StringEquals": "tools"`:        `"StringsEqual": "tools"`,
		`"TimeoutSecondsPath": "$.waitS`: `"TimeoutSeconds": 1, "TimeoutSecondsPath": "$.waitS`,
	} {
		file := spoiled(t, MachineFile, old, replaced)
		broken, args = append(broken, file), append(args, "--json-path", file)
	}
	out, err := node(t, "node_modules/asl-validator/dist/bin/asl-validator.js", args...)
	require.Error(t, err, out)
	require.Contains(t, out, sound+`" is valid`)
	for _, file := range broken {
		require.Contains(t, out, file+`" is invalid`)
	}
}

// The list of names is the one that its script writes.
func TestNamesAreCurrent(t *testing.T) {
	out, err := node(t, "names.mjs")
	require.NoError(t, err, out)
	require.JSONEq(t, out, string(namesJSON), "run make generate")
}
