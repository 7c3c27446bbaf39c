package dynamo

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/pkg/agent/store"
)

// ErrDamaged says that an item in the table is not one that this package stores.
var ErrDamaged = errors.New("stored item is damaged")

type attributes = map[string]types.AttributeValue

func encodeKey(k store.Key) attributes {
	return attributes{
		store.NamePK: &types.AttributeValueMemberS{Value: k.PK},
		store.NameSK: &types.AttributeValueMemberS{Value: k.SK},
	}
}

func encode(it store.Item) (attributes, error) {
	out := encodeKey(it.Key)
	for name, v := range it.Attrs {
		out[name] = encodeValue(v)
	}
	if it.Index != "" {
		out[store.NameIndex] = &types.AttributeValueMemberS{Value: it.Index}
		out[store.NameIndexSort] = &types.AttributeValueMemberS{Value: it.IndexSort}
	}
	if len(it.Body) == 0 {
		return out, nil
	}
	body, err := encodeBody(it)
	out[store.NameBody] = body
	return out, err
}

func encodeValue(v store.Value) types.AttributeValue {
	if v.IsString() {
		return &types.AttributeValueMemberS{Value: v.String()}
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v.Int(), 10)}
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
			return store.Value{}, fmt.Errorf("number %q: %w", v.Value, ErrDamaged)
		}
		return store.Num(n), nil
	default:
		return store.Value{}, fmt.Errorf("%T: %w", v, ErrDamaged)
	}
}

func text(v types.AttributeValue) (string, error) {
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		return "", fmt.Errorf("%T: %w", v, ErrDamaged)
	}
	return s.Value, nil
}

// textOf names an item in an error; it is empty where there is nothing to name it by.
func textOf(v types.AttributeValue) string {
	if s, ok := v.(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}
