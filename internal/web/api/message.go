package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// MaxInline is the largest inline file of a message in bytes, before base64. A larger file is a blob.
const MaxInline = 128 << 10

// maxBlocks is how many blocks a message may have. Each file is looked up.
const maxBlocks = 100

// maxName is the longest name of a file, in bytes.
const maxName = 1024

// block is a content block of a client.
type block struct {
	Type      string  `json:"type"`
	Text      *string `json:"text"`
	Name      string  `json:"name"`
	MediaType *string `json:"mediaType"`
	Data      *string `json:"data"`
	Blob      *string `json:"blob"`
}

// ReadMessage reads a message of a client: a string, or a list of text and media blocks. key names it in errors,
// which are *Problem.
func ReadMessage(key string, raw json.RawMessage) ([]run.UserBlock, error) {
	if len(raw) > 0 && raw[0] == '[' {
		var blocks []block
		if err := jsonx.DecodeStrict(raw, &blocks); err != nil {
			return nil, invalidProblem("%s: %v", key, err)
		}
		if len(blocks) > maxBlocks {
			return nil, problem(TooLarge, "%s: got %d blocks, want at most %d", key, len(blocks), maxBlocks)
		}
		for i, b := range blocks {
			if err := b.check(); err != nil {
				return nil, invalidProblem("%s[%d]: %v", key, i, err)
			}
		}
	}
	blocks, err := policy.ParseMessage(raw)
	if err != nil {
		return nil, invalidProblem("%s: %v", key, err)
	}
	return blocks, nil
}

func (b block) check() error {
	switch b.Type {
	case "text":
		if b.Text == nil || *b.Text == "" || b.MediaType != nil || b.Data != nil || b.Blob != nil || b.Name != "" {
			return fmt.Errorf("want a text block of type and text alone")
		}
		return nil
	case "media":
	default:
		return fmt.Errorf("type: got %.64q, want text or media", b.Type)
	}
	if b.Text != nil || b.MediaType == nil || (b.Data == nil) == (b.Blob == nil) {
		return fmt.Errorf("want a media block of type, mediaType, data or blob, and perhaps name")
	}
	if len(b.Name) > maxName {
		return fmt.Errorf("name: got %d bytes, want at most %d", len(b.Name), maxName)
	}
	if b.Blob != nil {
		return agent.CheckMedia(run.Media{MediaType: *b.MediaType, Blob: *b.Blob})
	}
	data, err := base64.StdEncoding.Strict().DecodeString(*b.Data)
	if err != nil || len(data) == 0 || strings.ContainsAny(*b.Data, "\r\n") {
		// the decoder skips line ends, later readers may not
		return fmt.Errorf("data: want base64 of one byte or more")
	}
	if len(data) > MaxInline {
		return fmt.Errorf("data: got %d bytes, want at most %d inline; upload it and name it as blob", len(data),
			MaxInline)
	}
	return nil
}
