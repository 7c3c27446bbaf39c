package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/store"
)

// A stored value is, in this order:
//
//	1 byte      format, 1
//	4 bytes     CRC-32C, little-endian, of the key and all that follows
//	uvarint     number of attributes; for each, by ascending name: name, 'n' and a varint or 's' and a string
//	string      Index
//	string      IndexSort, only if Index is not empty
//	the rest    Body
//
// A string is a uvarint length followed by its bytes. A later format gets another first byte; this one stays readable.
const (
	format     = 1
	headerSize = 1 + crc32.Size
	numberTag  = 'n'
	stringTag  = 's'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encode(it store.Item) []byte {
	b := make([]byte, headerSize, store.Size(it)+64)
	b = binary.AppendUvarint(b, uint64(len(it.Attrs)))
	for _, name := range slices.Sorted(maps.Keys(it.Attrs)) {
		b = appendString(b, name)
		if v := it.Attrs[name]; v.IsString() {
			b = appendString(append(b, stringTag), v.String())
		} else {
			b = binary.AppendVarint(append(b, numberTag), v.Int())
		}
	}
	b = appendString(b, it.Index)
	if it.Index != "" {
		b = appendString(b, it.IndexSort)
	}
	b = append(b, it.Body...)
	b[0] = format
	binary.LittleEndian.PutUint32(b[1:], checksum(it.Key, b[headerSize:]))
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
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
	content := b[headerSize:]
	if binary.LittleEndian.Uint32(b[1:]) != checksum(k, content) {
		return store.Item{}, store.Damaged(k, "checksum differs")
	}
	it, err := parse(k, content)
	if err != nil {
		return store.Item{}, store.Damaged(k, "%w", err)
	}
	return it, nil
}

// parse parses what follows the checksum.
func parse(k store.Key, content []byte) (store.Item, error) {
	r := reader{rest: content}
	it := store.Item{Key: k}
	for n := r.uvarint("attribute count"); n > 0 && r.err == nil; n-- {
		name := r.string("attribute name")
		v := r.value()
		if it.Attrs == nil { // nil if there are none
			it.Attrs = map[string]store.Value{}
		}
		it.Attrs[name] = v
	}
	if it.Index = r.string("index"); it.Index != "" {
		it.IndexSort = r.string("index sort key")
	}
	if len(r.rest) > 0 {
		it.Body = slices.Clone(r.rest)
	}
	return it, r.err
}

// reader consumes values from the front of rest. After its first error it returns zero values.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is cut short or malformed", what)
	}
	r.rest = nil
}

func (r *reader) value() store.Value {
	if len(r.rest) == 0 {
		r.fail("attribute value")
		return store.Value{}
	}
	tag := r.rest[0]
	r.rest = r.rest[1:]
	switch tag {
	case numberTag:
		n, size := binary.Varint(r.rest)
		return store.Num(takeNumber(r, n, size, "number"))
	case stringTag:
		return store.Str(r.string("string"))
	}
	r.fail("attribute type")
	return store.Value{}
}

func (r *reader) string(what string) string {
	n := r.uvarint(what)
	if n > uint64(len(r.rest)) {
		r.fail(what)
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

func (r *reader) uvarint(what string) uint64 {
	n, size := binary.Uvarint(r.rest)
	return takeNumber(r, n, size, what)
}

func takeNumber[N uint64 | int64](r *reader, n N, size int, what string) N {
	if size <= 0 {
		r.fail(what)
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
