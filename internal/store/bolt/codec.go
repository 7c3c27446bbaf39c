package bolt

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"slices"

	"github.com/countersign/countersign/internal/store"
)

// A stored value is the format, a CRC-32C of the key and of all that follows (4 bytes, little-endian), the attributes
// and the index as one line of JSON, and the body. A later format gets another first byte.
const (
	format     = 2
	headerSize = 1 + crc32.Size
)

// header is the line of JSON before a body.
type header struct {
	Strings   map[string]string `json:",omitempty"`
	Numbers   map[string]int64  `json:",omitempty"`
	Index     string            `json:",omitempty"`
	IndexSort string            `json:",omitempty"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(it store.Item) ([]byte, error) {
	h := header{Strings: map[string]string{}, Numbers: map[string]int64{}, Index: it.Index, IndexSort: it.IndexSort}
	for name, v := range it.Attrs {
		if v.IsString() {
			h.Strings[name] = v.String()
		} else {
			h.Numbers[name] = v.Int()
		}
	}
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := slices.Concat(make([]byte, headerSize), line, []byte("\n"), it.Body)
	b[0] = format
	binary.LittleEndian.PutUint32(b[1:], checksum(it.Key, b[headerSize:]))
	return b, nil
}

func checksum(k store.Key, content []byte) uint32 {
	return crc32.Update(crc32.Checksum(itemKey(k), castagnoli), castagnoli, content)
}

// decode returns the item stored as b under k, without keeping b. Its error is a *store.DamagedError.
func decode(k store.Key, b []byte) (store.Item, error) {
	if len(b) < headerSize {
		return store.Item{}, store.Damaged(k, "%d bytes are too few", len(b))
	}
	if b[0] != format {
		return store.Item{}, store.Damaged(k, "unknown format %d", b[0])
	}
	if binary.LittleEndian.Uint32(b[1:]) != checksum(k, b[headerSize:]) {
		return store.Item{}, store.Damaged(k, "checksum differs")
	}
	line, body, _ := bytes.Cut(b[headerSize:], []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return store.Item{}, store.Damaged(k, "%w", err)
	}
	it := store.Item{Key: k, Index: h.Index, IndexSort: h.IndexSort}
	if n := len(h.Strings) + len(h.Numbers); n > 0 {
		it.Attrs = make(map[string]store.Value, n)
	}
	for name, s := range h.Strings {
		it.Attrs[name] = store.Str(s)
	}
	for name, n := range h.Numbers {
		it.Attrs[name] = store.Num(n)
	}
	if len(body) > 0 {
		it.Body = bytes.Clone(body)
	}
	return it, nil
}
