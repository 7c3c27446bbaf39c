// Command lambdamod writes what functions are built with in place of go.mod, so that they are small and start soon (ADR 15): the same
// modules at the same versions, but the JSON Schema library compiles the metaschemas of a draft when a schema of that draft is compiled
// first and not at every init, golang.org/x/text, which words that library's own errors, is without its tables, and the SDK for MCP is
// without its server half. Package pkg/agent/tool/schema has words of its own, so that no text differs.
//
//	go run ./internal/lambdamod dist/lambda
//	go build -modfile dist/lambda/lambda.mod ./functions/step
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: lambdamod FOLDER, from the folder of go.mod")
		os.Exit(2)
	}
	if err := write(".", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "lambdamod:", err)
		os.Exit(1)
	}
}

// write fills the folder out for the module in the folder root: lambda.mod, lambda.sum and the modules that it replaces. Files that are as
// they should be are left alone and others exchanged whole, so that builds may do it at the same time.
func write(root, out string) error {
	folders := map[string]map[string][]byte{"text": text()}
	at := []replacement{{words, "text"}}
	for _, m := range changes {
		got, err := download(root, m.module)
		if err != nil {
			return err
		}
		files, err := patched(got.Dir, m.edits, m.spans)
		if err != nil {
			return fmt.Errorf("%s %s: %w", m.module, got.Version, err)
		}
		folder := m.folder + "-" + got.Version // files of another version are elsewhere and never mixed in
		folders[folder], at = files, append(at, replacement{m.module, folder})
	}
	var err error
	if folders["."], err = moduleFiles(root, out, at); err != nil {
		return err
	}
	for folder, content := range folders {
		for name, data := range content {
			if err := put(filepath.Join(out, folder, filepath.FromSlash(name)), data); err != nil {
				return err
			}
		}
	}
	return nil
}

// changes are the modules that are linked otherwise, and what of them is.
var changes = []struct {
	module, folder string
	edits          map[string][]edit
	spans          map[string][]span
}{
	{library, "jsonschema", edits, nil},
	{servers, "mcp", clientEdits, clientSpans},
}

// replacement says that a module is in a folder of the output.
type replacement struct{ module, folder string }

// moduleFiles are go.mod with replacements, and go.sum.
func moduleFiles(root, out string, replaced []replacement) (map[string][]byte, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, err
	}
	for _, r := range replaced {
		at, err := below(root, filepath.Join(out, r.folder))
		if err != nil {
			return nil, err
		}
		mod = fmt.Appendf(mod, "\nreplace %s => %q\n", r.module, at)
	}
	return map[string][]byte{"lambda.mod": mod, "lambda.sum": sum}, nil
}

// below is a folder as a replacement names it, seen from root: a binary remembers that, and nothing of the machine.
func below(root, folder string) (string, error) {
	base, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return "", err
	}
	rel, err := filepath.Rel(base, folder)
	if rel = filepath.ToSlash(rel); !strings.HasPrefix(rel, "../") {
		rel = "./" + rel
	}
	return rel, err
}

// module is what the go command says of one.
type module struct{ Dir, Version, Error string }

func download(root, name string) (module, error) {
	cmd := exec.Command("go", "mod", "download", "-json", name)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	said, failed := cmd.Output() // where it fails, what it says has the reason
	var m module
	if err := json.Unmarshal(said, &m); err != nil || m.Error != "" || failed != nil {
		return m, fmt.Errorf("%s cannot be had: %s", name, m.Error)
	}
	return m, nil
}

// patched are the files of a module without tests, by their paths with slashes, changed as edits say.
func patched(dir string, edits map[string][]edit, spans map[string][]span) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && d.IsDir() && (d.Name() == "testdata" || d.Name() == "examples" || d.Name() == "docs" || d.Name()[0] == '.'):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(d.Name(), "go.work") || d.Name()[0] == '.':
			return nil
		}
		out[name], err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		return err
	})
	if err != nil {
		return nil, err
	}
	for name, all := range spans {
		if out[name], err = exchange(out[name], all); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, all := range edits {
		if out[name], err = apply(out[name], all); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// edit exchanges a text that occurs once for another.
type edit struct{ old, new string }

func apply(source []byte, all []edit) ([]byte, error) {
	for _, e := range all {
		if n := bytes.Count(source, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("this is there %d times, want once; look at the new version and adapt internal/lambdamod:\n%s", n, e.old)
		}
		source = bytes.Replace(source, []byte(e.old), []byte(e.new), 1)
	}
	return source, nil
}

// put writes a file whole or not at all, and leaves one that says the same alone.
func put(file string, data []byte) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // it is gone where all went well
	_, err = next.Write(data)
	if closed := next.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(next.Name(), 0o644)
	}
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), file)
}
