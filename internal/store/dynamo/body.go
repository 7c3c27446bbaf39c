package dynamo

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/internal/store"
)

// A body is stored as binary, or deflated (RFC 1951) as a map of one binary under deflated. The type says which it is:
// no byte is added to a body that is stored as it came, so that an item of the greatest size fits.
const (
	deflated    = "deflate"
	mapOverhead = 3 + 1 + len(deflated) // as DynamoDB counts a map of one element

	// compressAbove is the length, in bytes, above which a body is worth the time.
	compressAbove = 2 << 10

	// growth is kept free of compression below store.MaxItem. DynamoDB measures what is stored, so that the limit of an
	// Update is exact where the body is not compressed, and where it is, the item could pass it only by growing so many
	// bytes by Updates.
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
	if err != nil {
		return nil, fmt.Errorf("deflate body: %w", err)
	}
	if _, err := w.Write(body); err != nil {
		return nil, fmt.Errorf("deflate body: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("deflate body: %w", err)
	}
	return out.Bytes(), nil
}

// inflate gives at most store.MaxItem bytes, which is more than any item's body: what would be larger is not ours.
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
