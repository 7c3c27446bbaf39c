package dynamo

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/internal/store"
)

// attributes is an item in the SDK's form.
type attributes = map[string]types.AttributeValue

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func encodeKey(k store.Key) attributes {
	return attributes{store.NamePK: str(k.PK), store.NameSK: str(k.SK)}
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
	if store.Size(it) <= store.MaxItem-growth { // an item near the limit has no room for a checksum
		out[store.NameSum] = encodeValue(store.Num(store.Sum(it.Key, it.Body)))
	}
	body, err := encodeBody(it)
	out[store.NameBody] = body
	return out, err
}

func encodeValue(v store.Value) types.AttributeValue {
	if v.IsString() {
		return str(v.String())
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(v.Int(), 10)}
}

// decode parses a whole item, or the keys of one. Its error is a *store.DamagedError.
func decode(stored attributes) (store.Item, error) {
	var it store.Item
	key := store.Key{PK: textOf(stored[store.NamePK]), SK: textOf(stored[store.NameSK])}
	for name, v := range stored {
		var err error
		switch name {
		case store.NameSum:
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
			if it.Attrs == nil {
				it.Attrs = map[string]store.Value{}
			}
			it.Attrs[name], err = decodeValue(v)
		}
		if err != nil {
			return store.Item{}, store.Damaged(key, "attribute %q: %w", name, err)
		}
	}
	if sum, ok := stored[store.NameSum]; ok { // the largest items have none
		v, err := decodeValue(sum)
		if err != nil || v != store.Num(store.Sum(key, it.Body)) {
			return store.Item{}, store.Damaged(key, "attribute %q: its body is not what was written under this key",
				store.NameBody)
		}
	}
	return it, nil
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

// textOf returns a key for an error message, or "" if there is none.
func textOf(v types.AttributeValue) string {
	s, _ := text(v)
	return s
}

// A body is stored as binary, or deflated (RFC 1951) as a map of one binary under deflated. The type tells which. An
// uncompressed body gets no extra byte, so that an item of the largest size fits.
const (
	deflated    = "deflate"
	mapOverhead = 3 + 1 + len(deflated) // as DynamoDB counts a map of one element

	// compressAbove is the length in bytes above which compressing a body is worthwhile.
	compressAbove = 2 << 10

	// growth is the size range below store.MaxItem in which bodies are not compressed. DynamoDB measures stored bytes, so
	// the limit of an Update is exact for an uncompressed body. A compressed item could exceed the limit only by growing
	// this many bytes through Updates.
	growth = 64 << 10
)

func encodeBody(it store.Item) (types.AttributeValue, error) {
	plain := &types.AttributeValueMemberB{Value: it.Body}
	if len(it.Body) <= compressAbove || store.Size(it) > store.MaxItem-growth {
		return plain, nil
	}
	small, err := deflate(it.Body)
	if err != nil {
		return nil, err
	}
	if len(small)+mapOverhead >= len(it.Body) {
		return plain, nil
	}
	packed := attributes{deflated: &types.AttributeValueMemberB{Value: small}}
	return &types.AttributeValueMemberM{Value: packed}, nil
}

func decodeBody(v types.AttributeValue) ([]byte, error) {
	switch v := v.(type) {
	case *types.AttributeValueMemberB:
		return v.Value, nil
	case *types.AttributeValueMemberM:
		small, ok := v.Value[deflated].(*types.AttributeValueMemberB)
		if !ok || len(v.Value) != 1 {
			return nil, errors.New("body of an unknown form")
		}
		return inflate(small.Value)
	default:
		return nil, errors.New("want a body")
	}
}

func deflate(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(body)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("deflate body: %w", err)
	}
	return out.Bytes(), nil
}

// inflate returns at most store.MaxItem bytes, which is more than any body. This package writes no larger body.
func inflate(small []byte) ([]byte, error) {
	in := bytes.NewReader(small)
	body, err := io.ReadAll(io.LimitReader(flate.NewReader(in), store.MaxItem+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("inflate body: %w", err)
	case len(body) > store.MaxItem:
		return nil, fmt.Errorf("inflate body to more than %d bytes", store.MaxItem)
	case in.Len() > 0:
		return nil, fmt.Errorf("inflate body: %d bytes behind its end", in.Len())
	}
	return body, nil
}

// startKey returns a range's ExclusiveStartKey: the keys of the last item before, which need not exist any more. It is
// nil at the start, and for a cursor outside the bounds, which DynamoDB would refuse and which has no effect. isEmpty
// says that nothing can be in the range.
func startKey(r store.Range) (start attributes, isEmpty bool, err error) {
	from, until, err := store.Span(r)
	if isEmpty = until != "" && from >= until; err != nil || isEmpty || r.Cursor == "" {
		return nil, isEmpty, err
	}
	b, err := base64.RawURLEncoding.DecodeString(r.Cursor)
	if last := string(b); err != nil || r.Reverse && until != last || !r.Reverse && from != last+"\x00" {
		return nil, false, err
	}
	last := store.Item{Key: store.Key{PK: r.PK, SK: string(b)}}
	if parts := strings.Split(string(b), "\x00"); r.Index { // whose form store.Span has checked
		last = store.Item{Index: r.PK, IndexSort: parts[0], Key: store.Key{PK: parts[1], SK: parts[2]}}
	}
	if err := store.CheckKey(last.Key); err != nil || r.Index && last.IndexSort == "" {
		return nil, false, fmt.Errorf("query %q: cursor %q names no item: %w", r.PK, r.Cursor, store.ErrInvalid)
	}
	start, err = encode(last)
	return start, false, err
}
