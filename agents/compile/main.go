// Command compile writes agents/compiled/agents.json, or the file it is given, from the registry of package agents, and beside it what
// bootstraps hold, agents.bin.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/catalog"
)

func main() {
	file := filepath.Join("agents", "compiled", "agents.json")
	if len(os.Args) > 1 {
		file = os.Args[1]
	}
	if err := compile(file); err != nil {
		fmt.Fprintln(os.Stderr, "compile agents:", err)
		os.Exit(1)
	}
}

func compile(file string) error {
	text, err := catalog.Text(agents.Registry())
	if err != nil {
		return err
	}
	packed, err := catalog.Pack(text)
	if err != nil {
		return err
	}
	if err := write(file, text); err != nil {
		return err
	}
	return write(strings.TrimSuffix(file, filepath.Ext(file))+".bin", packed)
}

// write writes the file whole or not at all, and leaves one that says the same alone.
func write(file string, text []byte) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, text) {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // it is gone where all went well
	_, err = next.Write(text)
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
