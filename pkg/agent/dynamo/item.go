package dynamo

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/countersign/countersign/pkg/agent/store"
)

// ErrDamaged says that an item in the table is not one that this package stores.
var ErrDamaged = errors.New("stored item is damaged")

func encodeKey(k store.Key) attributes {
	return attributes{
		store.NamePK: str(k.PK),
		store.NameSK: str(k.SK),
	}
}

func encode(it store.Item) (attributes, error) {
	out := encodeKey(it.Key)
	for name, v := range it.Attrs {
		out[name] = encodeValue(v)
	}
	if it.Index != "" {
		out[store.NameIndex] = str(it.Index)
		out[store.NameIndexSort] = str(it.IndexSort)
	}
	if len(it.Body) == 0 {
		return out, nil
	}
	body, err := encodeBody(it)
	out[store.NameBody] = body
	return out, err
}

func encodeValue(v store.Value) attribute {
	if v.IsString() {
		return str(v.String())
	}
	n := strconv.FormatInt(v.Int(), 10)
	return attribute{N: &n}
}

// decode reads a whole item, or the keys of one.
func decode(stored attributes) (store.Item, error) {
	var it store.Item
	for name, v := range stored {
		if err := decodePart(&it, name, v); err != nil {
			return store.Item{}, fmt.Errorf("read attribute %q of item %q %q: %w", name, textOf(stored[store.NamePK]), textOf(stored[store.NameSK]), err)
		}
	}
	return it, nil
}

func decodePart(it *store.Item, name string, v attribute) (err error) {
	switch name {
	case store.NamePK:
		it.PK, err = text(v)
	case store.NameSK:
		it.SK, err = text(v)
	case store.NameIndex:
		it.Index, err = text(v)
	case store.NameIndexSort:
		it.IndexSort, err = text(v)
	case store.NameBody:
		it.Body, err = decodeBody(v)
	default:
		var value store.Value
		if value, err = decodeValue(v); err == nil {
			if it.Attrs == nil {
				it.Attrs = map[string]store.Value{}
			}
			it.Attrs[name] = value
		}
	}
	return err
}

func decodeValue(v attribute) (store.Value, error) {
	switch {
	case v.S != nil:
		return store.Str(*v.S), nil
	case v.N != nil:
		n, err := strconv.ParseInt(*v.N, 10, 64)
		if err != nil {
			return store.Value{}, fmt.Errorf("number %q: %w", *v.N, ErrDamaged)
		}
		return store.Num(n), nil
	default:
		return store.Value{}, fmt.Errorf("want a string or a number: %w", ErrDamaged)
	}
}

func text(v attribute) (string, error) {
	if v.S == nil {
		return "", fmt.Errorf("want a string: %w", ErrDamaged)
	}
	return *v.S, nil
}

// textOf names an item in an error; it is empty where there is nothing to name it by.
func textOf(v attribute) string {
	if v.S == nil {
		return ""
	}
	return *v.S
}
