package badinput

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

// State is all that the given things hold, byte by byte: tables in memory, blobs in memory, folders by their path, and
// whatever else as JSON. It panics where one of them cannot be read.
func State(all ...any) string {
	out := ""
	for _, one := range all {
		switch held := one.(type) {
		case *memory.Table:
			out += rows(held.All())
		case *memory.Blobs:
			out += strings.Join(held.Names(), "\n")
		case string:
			out += files(held)
		default:
			data, err := json.Marshal(held)
			must(err)
			out += string(data)
		}
		out += "\n"
	}
	return out
}

func rows(all []store.Item) string {
	out := ""
	for _, it := range all {
		out += fmt.Sprintf("%v %v %v %v %q\n", it.Key, it.Attrs, it.Index, it.IndexSort, it.Body)
	}
	return out
}

func files(dir string) string {
	out := ""
	must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out += fmt.Sprintf("%s %x\n", path, store.BlobDigest(data))
		return err
	}))
	return out
}

func must(err error) {
	if err != nil {
		panic("badinput: " + err.Error())
	}
}
