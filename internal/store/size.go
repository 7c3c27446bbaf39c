package store

import "strconv"

// Limits of DynamoDB beside MaxItem and MaxOps, held by every adapter.
const (
	// MaxPage is the most bytes of items in one page of a Query. The first item is in its page however large.
	MaxPage = 1 << 20
	// MaxWrite is the most bytes of items in one Write.
	MaxWrite = 4 << 20
	// MaxPK and MaxSK are the longest keys in bytes; Index and IndexSort are held to the same.
	MaxPK = 2048
	MaxSK = 1024
)

// The names under which an item's own parts are stored beside its attributes. They count towards its size, so an
// adapter that chooses other names must not choose longer ones, and no attribute may take them.
const (
	NamePK        = "PK"
	NameSK        = "SK"
	NameBody      = "Body"
	NameIndex     = "Index"
	NameIndexSort = "IndexSort"
	NameSum       = "Sum" // an adapter may keep Sum there; it is not counted
)

// Size is the item's size in bytes as DynamoDB counts it towards MaxItem and towards capacity: names and values of
// keys, attributes, index and body, what is empty not counted. Numbers are DynamoDB's documented estimate, rounded up.
func Size(it Item) int {
	n := len(NamePK) + len(it.PK) + len(NameSK) + len(it.SK)
	if len(it.Body) > 0 {
		n += len(NameBody) + len(it.Body)
	}
	if it.Index != "" {
		n += len(NameIndex) + len(it.Index) + len(NameIndexSort) + len(it.IndexSort)
	}
	for name, v := range it.Attrs {
		n += len(name) + valueSize(v)
	}
	return n
}

// valueSize counts a number as one byte, one more for two digits, one more for a minus sign.
func valueSize(v Value) int {
	if v.isStr {
		return len(v.s)
	}
	digits := len(strconv.FormatInt(v.n, 10))
	if v.n < 0 {
		return 2 + digits/2 // digits counts the sign: (digits-1+1)/2
	}
	return 1 + (digits+1)/2
}
