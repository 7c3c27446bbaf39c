package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/countersign/countersign/internal/agent"
)

// EnvSecret is what the environment variables that hold secrets begin with; the secret's name follows as it is.
const EnvSecret = "COUNTERSIGN_SECRET_"

// SecretsFile is the file of a store directory that holds its secrets.
const SecretsFile = "secrets.yaml"

// maxSecretsFile is how large a file of secrets may be, in bytes.
const maxSecretsFile = 1 << 20

// LocalSecrets are the secrets of a laptop: those of the environment, then those of a file, a mapping of names to texts
// that only its owner may read. A key TENANT/NAME is for that tenant alone and goes before NAME, which is for every
// tenant. The file is read each time: what is changed counts from the next call on. Safe for concurrent use.
type LocalSecrets struct {
	File   string // path; one that is not there holds none
	Getenv func(string) string
}

// Secret is the value of that name.
func (l LocalSecrets) Secret(_ context.Context, tenant, name string) (string, error) {
	if !agent.ValidSecretName(name) {
		return "", fmt.Errorf("%w of that name", ErrNoSecret)
	}
	if l.Getenv != nil {
		if v := l.Getenv(EnvSecret + name); v != "" {
			return v, nil
		}
	}
	all, err := l.read()
	if err != nil {
		return "", err
	}
	if v := cmp.Or(all[tenant+"/"+name], all[name]); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("%w: want it in %s of the store directory or as %s%s in the environment", ErrNoSecret,
		SecretsFile, EnvSecret, name)
}

// read reads the file. Its errors hold nothing of it.
func (l LocalSecrets) read() (map[string]string, error) {
	f, err := os.Open(l.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", SecretsFile, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", SecretsFile, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: want a file", SecretsFile)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: got mode %04o, want 0600: others may read or write it; chmod 600 %s", SecretsFile,
			info.Mode().Perm(), l.File)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretsFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", SecretsFile, err)
	case len(data) > maxSecretsFile:
		return nil, fmt.Errorf("%s: want at most %d bytes, got more", SecretsFile, maxSecretsFile)
	}
	// Read a mapping of names to texts. It tells the line of what is wrong, and never shows it.
	var all map[string]any
	if err := yaml.UnmarshalWithOptions(data, &all); err != nil {
		var s *yaml.SyntaxError
		if errors.As(err, &s) && s.Token != nil {
			// A name is said; a key within a value is not.
			if strings.Contains(s.Message, "already defined") && s.Token.Position.Column == 1 {
				return nil, fmt.Errorf("%s:%d: %.80s: got the name a second time, want it once", SecretsFile, s.Token.Position.Line,
					s.Token.Value)
			}
			return nil, fmt.Errorf("%s:%d: want NAME: \"value\"", SecretsFile, s.Token.Position.Line)
		}
		return nil, fmt.Errorf("%s: want a mapping of names to texts", SecretsFile)
	}
	texts := make(map[string]string, len(all))
	for name, v := range all {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s: %.80s: want a text; put digits and the like in quotes", SecretsFile, name)
		}
		texts[name] = text
	}
	return texts, nil
}
