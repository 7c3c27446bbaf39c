package catalog

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// maxText bounds what Unpack unpacks, in bytes.
const maxText = 64 << 20

// Pack makes what Text has written small, for a bootstrap to hold. The same text always makes the same.
func Pack(text []byte) ([]byte, error) {
	var small bytes.Buffer
	if err := json.Compact(&small, text); err != nil {
		return nil, fmt.Errorf("pack agents: %w", err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("pack agents: %w", err)
	}
	if _, err := w.Write(small.Bytes()); err != nil {
		return nil, fmt.Errorf("pack agents: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack agents: %w", err)
	}
	return packed.Bytes(), nil
}

// Unpack reads what Pack has made, as Read does.
func Unpack(packed string) (*Catalog, error) {
	r := flate.NewReader(strings.NewReader(packed))
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("unpack agents: %w", err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("unpack agents: want at most %d bytes", maxText)
	}
	return Read(text)
}

// Must is Unpack for agents that were compiled in; it panics where Unpack fails.
func Must(packed string) *Catalog {
	c, err := Unpack(packed)
	if err != nil {
		panic(err)
	}
	return c
}
