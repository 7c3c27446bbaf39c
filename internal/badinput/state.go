package badinput

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign/countersign/internal/store"
)

// State formats the content of memory tables, memory blobs, folders (by path) and other values (as JSON). It panics if
// one of them cannot be read.
func State(all ...any) string {
	out := ""
	for _, one := range all {
		switch held := one.(type) {
		case *store.Memory:
			for _, it := range held.All() {
				out += fmt.Sprintf("%v %v %v %v %q\n", it.Key, it.Attrs, it.Index, it.IndexSort, it.Body)
			}
		case *store.MemoryBlobs:
			out += strings.Join(held.Names(), "\n")
		case string:
			must(filepath.WalkDir(held, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				out += fmt.Sprintf("%s %x\n", path, store.BlobDigest(data))
				return err
			}))
		default:
			data, err := json.Marshal(held)
			must(err)
			out += string(data)
		}
		out += "\n"
	}
	return out
}

func must(err error) {
	if err != nil {
		panic("badinput: " + err.Error())
	}
}
