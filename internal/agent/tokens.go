package agent

// Tokens are estimated by bytes, as seed 002 does, because no provider's tokenizer can be had everywhere and every estimate has to be the same
// on every machine (semantics 4.1). Which ratio counts where:
//
//   - What the sum of the conversation holds is prose, arguments and results of calls included: so the seed counts a message once it is
//     added. A message costs 4 more, a call 10 more for its name and its frame, a result its call's id more.
//   - JSON is denser: definitions of tools are measured by it, and a result where it is looked at by itself (compressResults).
//   - Media are no text. A picture or a file takes imageTokens, whatever its bytes; a file of text, what its text takes.
//
// Estimates are wrong by a third either way. Context.Reserve.Safety is for that, and where nothing of the partition is fixed a provider's own
// count replaces them (gauge).

// The extra cost of what is around a text.
const (
	messageTokens = 4
	callTokens    = 10
	imageTokens   = 1600 // of a picture as large as providers take it
)

// ProseTokens estimates so many bytes of prose: one token for 3.2 bytes, rounded up.
func ProseTokens(bytes int) int { return (bytes*5 + 15) / 16 }

// JSONTokens estimates so many bytes of JSON: one token for 2.8 bytes, rounded up.
func JSONTokens(bytes int) int { return (bytes*5 + 13) / 14 }

// proseBytes is how many bytes of prose are no more than so many tokens.
func proseBytes(tokens int) int { return tokens * 16 / 5 }

// tokens estimates a message as it stands in a request. bodies are the sizes of results that are in blobs.
func (m Message) tokens(bodies map[string]int) int {
	switch b := m.Block.(type) {
	case Text:
		return messageTokens + ProseTokens(len(b.Text))
	case Reasoning:
		return messageTokens + ProseTokens(len(b.Text)+len(b.Signature)+len(b.Redacted))
	case Media:
		return messageTokens + b.tokens()
	case ToolUse:
		return messageTokens + callTokens + ProseTokens(len(b.Input))
	case ToolResult:
		return messageTokens + ProseTokens(b.size(bodies)) + ProseTokens(len(b.ID))
	default:
		return messageTokens
	}
}

// size is the length of the result as a model reads it, in bytes.
func (r ToolResult) size(bodies map[string]int) int {
	if r.Content == "" && r.Blob != "" {
		return bodies[r.Blob]
	}
	return len(r.Content)
}

func (m Media) tokens() int {
	const base64Text = 4 // bytes for three of the file
	if len(m.MediaType) > 5 && m.MediaType[:5] == "text/" {
		return ProseTokens(len(m.Data) / base64Text * 3)
	}
	return imageTokens
}

// toolTokens measures the definitions of tools as a request offers them.
func toolTokens(tools []ToolSpec) int {
	if len(tools) == 0 {
		return 0
	}
	type definition struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Schema      any    `json:"inputSchema"`
	}
	offered := make([]definition, len(tools))
	for i, t := range tools {
		offered[i] = definition{t.Name, t.Description, t.Schema}
	}
	text, err := MarshalVerbatim(offered)
	if err != nil { // a schema that Check let through always marshals
		return 0
	}
	return JSONTokens(len(text))
}
