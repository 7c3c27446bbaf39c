package teeth

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variable is what the mutated build reads at its start: the name of the mutation that works.
const Variable = "COUNTERSIGN_TOOTH"

// toothFile is added to each package that has edits.
const toothFile = "tooth_overlay.go"

const toothSource = `package %s

import "os"

var biting = os.Getenv(%q)

// tooth reports whether a mutation of one of these names works.
func tooth(names ...string) bool {
	for _, n := range names {
		if n == biting {
			return true
		}
	}
	return false
}

// either is a value with the mutation of that name, and without.
func either[T any](name string, with, without T) T {
	if tooth(name) {
		return with
	}
	return without
}
`

// mutated are the sources that edits change, by path from root, and those that are added: what an overlay holds. An edit whose old text does not
// stand in its file exactly once, or that overlaps another, is an error.
func mutated(root string, all []Mutation) (map[string][]byte, error) {
	edits := map[string][]Edit{}
	for _, m := range all {
		for _, e := range m.Edits {
			if !slices.Contains(edits[e.File], e) { // two may begin with the same
				edits[e.File] = append(edits[e.File], e)
			}
		}
	}
	out := map[string][]byte{}
	for file, list := range edits {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		changed, err := edited(string(source), list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, changed, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("edited: %w", err)
		}
		out[file] = []byte(changed)
		out[filepath.ToSlash(filepath.Join(filepath.Dir(file), toothFile))] = fmt.Appendf(nil, toothSource, parsed.Name.Name, Variable)
	}
	return out, nil
}

// edited is a source with all edits, each applied to the text as it was.
func edited(source string, edits []Edit) (string, error) {
	type place struct {
		at int
		Edit
	}
	var places []place
	for _, e := range edits {
		if n := strings.Count(source, e.Old); n != 1 {
			return "", fmt.Errorf("this stands there %d times, want once; look at the code and adapt internal/teeth:\n%s", n, e.Old)
		}
		places = append(places, place{strings.Index(source, e.Old), e})
	}
	slices.SortFunc(places, func(a, b place) int { return a.at - b.at })
	var b strings.Builder
	end := 0
	for _, p := range places {
		if p.at < end {
			return "", fmt.Errorf("two edits are of the same text; take both into one mutation's, or apart:\n%s", p.Old)
		}
		b.WriteString(source[end:p.at])
		b.WriteString(p.New)
		end = p.at + len(p.Old)
	}
	b.WriteString(source[end:])
	return b.String(), nil
}

// WriteOverlay writes the mutated sources of the module in the folder root into the folder dir, and gives the file that `go build
// -overlay` takes.
func WriteOverlay(root, dir string, all []Mutation) (file string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	sources, err := mutated(root, all)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, data := range sources {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(name))] = copied
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, raw, 0o600)
}
