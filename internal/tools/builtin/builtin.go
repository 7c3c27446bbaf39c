// Package builtin is the tools every definition may name without bringing them: the file tools and extract_text.
package builtin

import (
	"fmt"

	"github.com/countersign/countersign/internal/tool"
)

// Tools returns list_directory, read_text, move_file and extract_text, all confined to the folder at root, an absolute
// path. ocrEnv is the environment of tesseract, NAME=value, usually none; see ocr.Tool.
func Tools(root string, ocrEnv ...string) ([]tool.Tool, error) {
	onFiles, err := FileTools(root)
	if err != nil {
		return nil, fmt.Errorf("make built-in tools: %w", err)
	}
	extract, err := Tool(root, ocrEnv...)
	if err != nil {
		return nil, fmt.Errorf("make built-in tools: %w", err)
	}
	return append(onFiles, extract), nil
}
