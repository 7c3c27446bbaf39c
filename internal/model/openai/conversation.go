package openai

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/run"
)

// conversation groups one-block messages into a provider's. A turn's text and calls become one assistant message; its
// results follow at once, in the order of the calls, wherever they stood; what the user's side says between two turns
// becomes one user message. Blank texts are left out. Reasoning goes back to the model that wrote it, under its name.
func conversation(model agent.ModelSpec, system string, messages []run.Message) ([]chatMessage, error) {
	results, err := modelretry.CheckConversation(messages)
	if err != nil {
		return nil, err
	}
	g := grouping{model: model, out: []chatMessage{}, results: results, openAI: isOpenAI(model.BaseURL),
		mistral: strings.Contains(model.ID, "stral") || strings.Contains(model.ID, "xtral")}
	g.thinks = g.wantsReasoning(messages)
	if system != "" {
		g.out = append(g.out, chatMessage{Role: "system", Content: system})
	}
	for _, m := range messages {
		g.add(m)
	}
	g.endTurn()
	g.endUser()
	return g.out, nil
}

// grouping is the messages so far, and the one that is still open: a turn of the model's or one of the user's.
type grouping struct {
	out      []chatMessage
	model    agent.ModelSpec // that is asked
	openAI   bool            // OpenAI or Azure is asked
	mistral  bool            // it is Mistral's, which take less than others
	thinks   bool            // it wants reasoning with each turn
	results  map[string]run.ToolResult
	turn     *chatMessage
	begins   chatMessage // reasoning that the next turn begins with
	thought  bool        // reasoning stood behind the turn's text, which may go on behind it
	textFrom run.Source  // where the turn's last text is from
	user     []run.Block
}

// noDocuments are how types of files begin that no server takes.
var noDocuments = []string{"audio/", "video/", "font/", "application/octet-stream", "application/zip",
	"application/gzip", "application/x-"}

// noFiles are hosts that refuse a request with a file that is no picture. DeepSeek refuses pictures as well.
var noFiles = []string{"groq.com", "cerebras.ai", "mistral.ai", "moonshot.ai", "moonshot.cn", "z.ai", "bigmodel.cn",
	"ollama.com"}

// pictures are the types of pictures that OpenAI takes. Other servers take more: Gemini's HEIC, some BMP.
var pictures = []string{"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}

// add takes the next message.
func (g *grouping) add(m run.Message) {
	switch b := m.Block.(type) {
	case run.Text:
		if strings.TrimSpace(b.Text) == "" { // many servers refuse it
			return
		}
		if m.Role == run.RoleAssistant {
			g.addText(b.Text, m.Source)
			return
		}
		g.endTurn()
		g.user, g.begins = append(g.user, b), chatMessage{}
	case run.Media:
		is := func(kind string) bool { return strings.HasPrefix(strings.ToLower(b.MediaType), kind) }
		data, err := base64.StdEncoding.DecodeString(b.Data)
		text, plain := "", err == nil && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0
		// OpenAI takes no files but PDF
		if is("text/") || is("image/svg") || plain && is("application/") && !is("application/pdf") {
			text = "[" + agent.MediaName(b) + "]\n" + strings.ToValidUTF8(string(data), "\uFFFD")
		} else if slices.ContainsFunc(noDocuments, is) { // a file that a tool gave does not end the run
			text = agent.TextMediaLeftOut(b, "chat completions take pictures and documents")
		} else if g.openAI && is("image/") && !slices.ContainsFunc(pictures, is) {
			text = agent.TextMediaLeftOut(b, "OpenAI takes PNG, JPEG, GIF and WebP")
		} else if base := g.model.BaseURL; isHostedAt(base, "deepseek.com") ||
			!is("image/") && (isHostedAt(base, noFiles...) || strings.Contains(base, ":11434")) { // Ollama's port
			text = agent.TextMediaLeftOut(b, "the service takes none")
		}
		if text != "" {
			g.add(run.Message{Role: m.Role, Block: run.Text{Text: text}})
			return
		}
		g.endTurn()
		g.user, g.begins = append(g.user, b), chatMessage{}
	case run.Reasoning:
		g.addReasoning(b)
	case run.ToolUse:
		g.thought = false
		g.endUser()
		if g.turn == nil {
			g.beginTurn(nil)
		}
		call := chatFunction{b.Name, string(modelretry.SentArguments(b.Input))}
		g.turn.ToolCalls = append(g.turn.ToolCalls, chatCall{ID: b.ID, Type: "function", Function: call})
	case run.ToolResult:
		g.endTurn()
		g.begins = chatMessage{}
	}
}

// addReasoning takes reasoning: of a turn that goes on behind it, of the turn that begins with it, or of the call
// before it.
func (g *grouping) addReasoning(b run.Reasoning) {
	calls := g.turn != nil && len(g.turn.ToolCalls) > 0
	g.thought = g.turn != nil && !calls
	if b.Provider != provider || b.Model != g.model.ID || g.mistral { // whose own field for it Mistral refuses
		return
	}
	if b.Field == fieldReasoningContent && isHostedAt(g.model.BaseURL, reasoningAlone...) {
		b.Field = fieldReasoning
	}
	to := &g.begins
	if g.thought {
		to = g.turn
	}
	switch b.Field {
	case fieldReasoningContent:
		to.ReasoningContent += b.Text
	case fieldReasoning:
		to.Reasoning += b.Text
	case fieldDetails:
		to.Details = b.Redacted
	case fieldBlocks:
		to.Blocks = b.Redacted
	case fieldExtra:
		if !calls {
			return
		}
		if last := &g.turn.ToolCalls[len(g.turn.ToolCalls)-1]; last.Extra == nil {
			last.Extra = b.Redacted
		}
	}
}

// beginTurn starts a turn with the reasoning that came before it.
func (g *grouping) beginTurn(content any) {
	turn := g.begins
	turn.Role, turn.Content = "assistant", content
	g.turn, g.begins = &turn, chatMessage{}
}

// addText starts a turn, because text precedes calls, or continues one: many chat templates refuse two turns of the
// model's in a row, as they are left where what came between was said once alone. A text that reasoning has interrupted
// goes on without a break.
func (g *grouping) addText(text string, from run.Source) {
	interrupted := g.thought && from.SameEvent(g.textFrom)
	g.textFrom, g.thought = from, false
	if g.turn != nil && len(g.turn.ToolCalls) == 0 {
		said, _ := g.turn.Content.(string) // a turn without calls has begun with a text
		if !interrupted {
			said += "\n\n"
		}
		g.turn.Content = said + text
		return
	}
	g.endUser()
	g.endTurn()
	g.beginTurn(text)
}

// endTurn closes the model's turn. Many services and templates want a user's message before the first.
func (g *grouping) endTurn() {
	g.thought = false
	if g.turn == nil {
		return
	}
	if last := len(g.out) - 1; last < 0 || g.out[last].Role == "system" {
		g.out = append(g.out, chatMessage{Role: "user", Content: modelretry.Opening})
	}
	g.addPlaceholders()
	g.out = append(g.out, *g.turn)
	for i, c := range g.turn.ToolCalls {
		id := g.callID(c.ID)
		g.turn.ToolCalls[i].ID = id
		content := modelretry.NoResponse
		if result, ok := g.results[c.ID]; ok {
			if content = result.Content; strings.TrimSpace(content) == "" {
				content = modelretry.NoOutput
			}
		}
		g.out = append(g.out, chatMessage{Role: "tool", ToolCallID: id, Content: content})
	}
	g.turn = nil
}

// callID is a call's id as servers take it: nine letters and digits for Mistral, at most 40 characters for OpenAI.
func (g *grouping) callID(id string) string {
	switch hash := run.HashID(id); {
	case g.mistral && (len(id) != 9 || strings.ContainsAny(id, "_-")):
		return hash[:9]
	case len(id) > 40:
		return hash
	}
	return id
}

// endUser writes texts alone as one string with blank lines between, which servers with a text-only template take as
// well.
func (g *grouping) endUser() {
	if len(g.user) == 0 {
		return
	}
	var texts []string
	var parts []chatPart
	for _, b := range g.user {
		switch b := b.(type) {
		case run.Text:
			texts = append(texts, b.Text)
			parts = append(parts, chatPart{Type: "text", Text: &b.Text})
		case run.Media:
			// OpenAI takes 50 MB of files and pictures in a request, base64 included, which agent.MaxRequestMedia stays
			// below. Other servers say themselves what is too large, as an invalid request.
			data := "data:" + b.MediaType + ";base64," + b.Data
			if strings.HasPrefix(strings.ToLower(b.MediaType), "image/") {
				parts = append(parts, chatPart{Type: "image_url", ImageURL: map[string]string{"url": data}})
				continue
			}
			file := map[string]string{"filename": cmp.Or(b.Name, "file"), "file_data": data}
			parts = append(parts, chatPart{Type: "file", File: file})
		}
	}
	message := chatMessage{Role: "user", Content: parts}
	if len(texts) == len(parts) {
		message.Content = strings.Join(texts, "\n\n")
	}
	if last := len(g.out) - 1; g.mistral && last >= 0 && g.out[last].Role == "tool" { // refused directly behind it
		g.out = append(g.out, chatMessage{Role: "assistant", Content: modelretry.GotResults})
	}
	g.out, g.user = append(g.out, message), nil
}
