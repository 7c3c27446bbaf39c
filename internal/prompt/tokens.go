package prompt

import "github.com/countersign/countersign/internal/run"

// Tokens are estimated by bytes, as seed 002 does, because no provider's tokenizer can be had everywhere and every
// estimate has to be the same on every machine (presets 6). Which ratio counts where:
//
//   - What the sum of the conversation holds is prose, arguments and results of calls included: so the seed counts a
//     message once it is added. A message costs 4 more, a call 10 more for its name and its frame, a result its call's
//     id more.
//   - JSON is denser: definitions of tools are measured by it, and a result where it is looked at by itself
//     (compressResult).
//   - Media are no text. A picture or a file takes imageTokens, whatever its bytes; a file of text, what its text
//     takes.
//
// Estimates are wrong by a third either way. Context.Reserve.Safety is for that, and where nothing of the partition is
// fixed a provider's own count replaces them (gauge).

// The extra cost of what is around a text.
const (
	messageTokens = 4
	callTokens    = 10
	imageTokens   = 1600 // of a picture as large as providers take it
)

// ProseTokens estimates so many bytes of prose: one token for 3.2 bytes, rounded up.
func ProseTokens(bytes int) int { return (bytes*5 + 15) / 16 }

// MessageTokens estimates a message as it stands in a request. bodies are the sizes of results that are in blobs.
func MessageTokens(m run.Message, bodies map[string]int) int {
	switch b := m.Block.(type) {
	case run.Text:
		return messageTokens + ProseTokens(len(b.Text))
	case run.Reasoning:
		return messageTokens + ProseTokens(len(b.Text)+len(b.Signature)+len(b.Redacted))
	case run.Media:
		return messageTokens + mediaTokens(b)
	case run.ToolUse:
		return messageTokens + callTokens + ProseTokens(len(b.Input))
	case run.ToolResult:
		return messageTokens + ProseTokens(resultSize(b, bodies)) + ProseTokens(len(b.ID))
	default:
		return messageTokens
	}
}

// resultSize is the length of the result as a model reads it, in bytes.
func resultSize(r run.ToolResult, bodies map[string]int) int {
	if r.Content == "" && r.Blob != "" {
		return bodies[r.Blob]
	}
	return len(r.Content)
}

// mediaTokens is an estimate of what the file takes of a model's window.
func mediaTokens(m run.Media) int {
	const base64Text = 4 // bytes for three of the file
	if len(m.MediaType) > 5 && m.MediaType[:5] == "text/" {
		return ProseTokens(len(m.Data) / base64Text * 3)
	}
	return imageTokens
}
