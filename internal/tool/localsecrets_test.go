package tool_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tool"
)

func TestLocal(t *testing.T) {
	file := filepath.Join(t.TempDir(), tool.SecretsFile)
	env := map[string]string{"COUNTERSIGN_SECRET_FROM_ENV": "of the environment", "COUNTERSIGN_SECRET_BOTH": "of the environment"}
	l := tool.LocalSecrets{File: file, Getenv: func(name string) string { return env[name] }}

	_, err := l.Secret(t.Context(), "acme", "KEY")
	require.ErrorIs(t, err, tool.ErrNoSecret, "no file is no trouble")
	require.ErrorContains(t, err, "COUNTERSIGN_SECRET_KEY")

	require.NoError(t, os.WriteFile(file, []byte("KEY: everybody's\nacme/KEY: \"acme's\"\nBOTH: of the file\nmany: |\n  two\n  lines\nEMPTY: \"\"\n"), 0o600))
	for _, c := range []struct{ tenant, name, want string }{
		{"acme", "KEY", "acme's"},
		{"globex", "KEY", "everybody's"},
		{"acme", "many", "two\nlines\n"},
		{"acme", "BOTH", "of the environment"},
		{"acme", "FROM_ENV", "of the environment"},
		{"acme", "EMPTY", ""},
		{"acme", "absent", ""},
		{"globex", "acme/KEY", ""}, // another tenant's, by a name that is none
	} {
		v, err := l.Secret(t.Context(), c.tenant, c.name)
		if c.want == "" {
			require.ErrorIs(t, err, tool.ErrNoSecret, c.name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, v, c.name)
	}
}

// What is wrong with the file is told without what is in it.
func TestLocalFileIsRefused(t *testing.T) {
	const canary = "hunter2"
	for text, want := range map[string]string{
		"KEY: " + canary + "\n\t- [":                  "secrets.yaml",
		"KEY: 'a\nOTHER: " + canary:                   "secrets.yaml",
		"- " + canary:                                 "want a mapping of names to texts",
		"KEY: {a: " + canary + "}":                    "secrets.yaml: KEY: want a text",
		"KEY: 12345678":                               "put digits and the like in quotes",
		canary:                                        "secrets.yaml",
		"KEY: " + canary + "\nKEY: " + canary:         "secrets.yaml:2: KEY: got the name a second time, want it once",
		"KEY: {" + canary + ": a, " + canary + ": b}": `secrets.yaml:1: want NAME: "value"`,
	} {
		file := filepath.Join(t.TempDir(), tool.SecretsFile)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := tool.LocalSecrets{File: file}.Secret(t.Context(), "acme", "KEY")
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), canary)
		require.NotErrorIs(t, err, tool.ErrNoSecret)
	}
}

func TestLocalFileIsForItsOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("has no such modes")
	}
	file := filepath.Join(t.TempDir(), tool.SecretsFile)
	require.NoError(t, os.WriteFile(file, []byte("KEY: value-1\n"), 0o600))
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644, 0o777} {
		require.NoError(t, os.Chmod(file, mode))
		_, err := tool.LocalSecrets{File: file}.Secret(t.Context(), "acme", "KEY")
		require.ErrorContains(t, err, "want 0600", mode.String())
		require.ErrorContains(t, err, "chmod 600")
	}
	for _, mode := range []os.FileMode{0o600, 0o400} {
		require.NoError(t, os.Chmod(file, mode))
		v, err := tool.LocalSecrets{File: file}.Secret(t.Context(), "acme", "KEY")
		require.NoError(t, err)
		require.Equal(t, "value-1", v)
	}
	_, err := tool.LocalSecrets{File: filepath.Dir(file)}.Secret(t.Context(), "acme", "KEY")
	require.ErrorContains(t, err, "want a file")
}
