package dynamo

import (
	"errors"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/internal/store"
)

// attributes are an item as the SDK sends and reads it.
type attributes = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

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
	if hasChecksum(it) {
		out[store.NameSum] = encodeValue(store.Num(store.Sum(it.Key, it.Body)))
	}
	body, err := encodeBody(it)
	out[store.NameBody] = body
	return out, err
}

// hasChecksum reports whether an item is stored with a checksum of its body: one near the size limit has no room.
func hasChecksum(it store.Item) bool { return store.Size(it) <= store.MaxItem-growth }

func encodeValue(v store.Value) types.AttributeValue {
	if v.IsString() {
		return str(v.String())
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v.Int(), 10)}
}

// decode reads a whole item, or the keys of one. Its error is a *store.DamagedError.
func decode(stored attributes) (store.Item, error) {
	var it store.Item
	key := store.Key{PK: textOf(stored[store.NamePK]), SK: textOf(stored[store.NameSK])}
	for name, v := range stored {
		if name == store.NameSum {
			continue
		}
		if err := decodePart(&it, name, v); err != nil {
			return store.Item{}, store.Damaged(key, "attribute %q: %w", name, err)
		}
	}
	if sum, ok := stored[store.NameSum]; ok { // the largest items have none
		v, err := decodeValue(sum)
		if err != nil || v != store.Num(store.Sum(key, it.Body)) {
			return store.Item{}, store.Damaged(key, "attribute %q: its body is not what was written under this key", store.NameBody)
		}
	}
	return it, nil
}

func decodePart(it *store.Item, name string, v types.AttributeValue) (err error) {
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

func decodeValue(v types.AttributeValue) (store.Value, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return store.Str(v.Value), nil
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err != nil {
			return store.Value{}, errors.New("want a number of 64 bits")
		}
		return store.Num(n), nil
	default:
		return store.Value{}, errors.New("want a string or a number")
	}
}

func text(v types.AttributeValue) (string, error) {
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		return "", errors.New("want a string")
	}
	return s.Value, nil
}

// textOf names an item in an error; it is empty where there is nothing to name it by.
func textOf(v types.AttributeValue) string {
	s, _ := text(v)
	return s
}
