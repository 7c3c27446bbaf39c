package standins

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// body is the part of a request that rules are about. Its keys are spelled as the names here, but for capitals.
type body struct {
	System       []converseContent
	OutputConfig *struct {
		TextFormat *struct {
			Type      string
			Structure struct {
				JSONSchema *struct{ Name, Schema string }
			}
		}
	}
	Messages []struct {
		Role    string
		Content []converseContent
	}
	ToolConfig *struct {
		Tools []struct {
			CachePoint *cachePoint
			ToolSpec   *struct {
				Name        string
				Description *string
				InputSchema struct{ JSON json.RawMessage }
			}
		}
	}
}

type converseContent struct {
	Text    *string
	ToolUse *struct {
		ToolUseID, Name string
		Input           json.RawMessage
	}
	ToolResult *struct {
		ToolUseID string
		Content   []converseContent
	}
	ReasoningContent       *reasoning
	CachePoint             *cachePoint
	Image, Document, Video *media
}

// reasoning is one of the two kinds of reasoning.
type reasoning struct {
	ReasoningText *struct {
		Text      *string
		Signature string
	}
	RedactedContent []byte
}

type cachePoint struct{ Type, TTL string }

type media struct {
	Format, Name string
	Source       struct{ Bytes []byte }
}

var (
	toolName     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	documentName = regexp.MustCompile(`^[a-zA-Z0-9\-()\[\]]+( [a-zA-Z0-9\-()\[\]]+)*$`)
	formats      = []string{"png", "jpeg", "gif", "webp", "pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md",
		"mp4", "mov", "mkv", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"}
)

// CheckConverse says which rule of Bedrock's a request's body breaks, nil = none that is known here: those of roles,
// texts, tools with their calls and results, documents, reasoning, cache points and output formats. Whether the proof
// of reasoning is a true one the server alone can tell.
func CheckConverse(request []byte) error {
	b, err := readConverse(request)
	if err != nil {
		return err
	}
	if len(b.Messages) == 0 || b.Messages[0].Role != "user" {
		return errors.New("a conversation must start with a user message")
	}
	c := checking{names: map[string]bool{}, ids: map[string]bool{}}
	for i, m := range b.Messages {
		if i > 0 && m.Role == b.Messages[i-1].Role {
			return fmt.Errorf("messages.%d: roles must alternate", i)
		}
		if err := c.message(m.Role, m.Content); err != nil {
			return fmt.Errorf("messages.%d: %w", i, err)
		}
	}
	if len(c.open) > 0 {
		return errors.New("the last message has a toolUse without a toolResult")
	}
	if len(c.names) > 5 {
		return errors.New("there are too many documents")
	}
	return errors.Join(b.checkTools(len(c.ids) > 0), blankIn(b.System), b.checkCachePoints(), b.checkOutput())
}

func readConverse(request []byte) (b body, err error) {
	if err := json.Unmarshal(request, &b); err != nil {
		return b, fmt.Errorf("the body is not JSON of the right kind: %w", err)
	}
	return b, nil
}

// checkCachePoints goes through tools, system and messages, which is the order of what is cached.
func (b body) checkCachePoints() error {
	var points []cachePoint
	behind := func(blocks []converseContent) error {
		for i, block := range blocks {
			if block.CachePoint == nil {
				continue
			}
			if points = append(points, *block.CachePoint); i == 0 || blocks[i-1].ReasoningContent != nil {
				return errors.New("cache point cannot be inserted here")
			}
		}
		return nil
	}
	if b.ToolConfig != nil {
		for _, t := range b.ToolConfig.Tools {
			if t.CachePoint != nil {
				points = append(points, *t.CachePoint)
			}
		}
	}
	err := behind(b.System)
	for _, m := range b.Messages {
		err = errors.Join(err, behind(m.Content))
	}
	for _, p := range points {
		if p.Type != "default" || p.TTL != points[0].TTL || p.TTL != "" && p.TTL != "5m" && p.TTL != "1h" {
			return errors.New("a cache point is of no known type or of another life than the first")
		}
	}
	if len(points) > 4 {
		return errors.New("there are too many cache points")
	}
	return err
}

func (b body) checkOutput() error {
	if b.OutputConfig == nil || b.OutputConfig.TextFormat == nil {
		return nil
	}
	f := b.OutputConfig.TextFormat
	if schema := f.Structure.JSONSchema; f.Type != "json_schema" || schema == nil ||
		!isObject(json.RawMessage(schema.Schema)) || !toolName.MatchString(schema.Name) {
		return errors.New("outputConfig.textFormat is not in order")
	}
	return nil
}

func (b body) checkTools(needed bool) error {
	if b.ToolConfig == nil && needed {
		return errors.New("the toolConfig field must be defined when using toolUse and toolResult content blocks")
	}
	if b.ToolConfig == nil {
		return nil
	}
	found := false
	for i, t := range b.ToolConfig.Tools {
		found = found || t.ToolSpec != nil
		if t.ToolSpec != nil && (!toolName.MatchString(t.ToolSpec.Name) || !isObject(t.ToolSpec.InputSchema.JSON) ||
			t.ToolSpec.Description != nil && *t.ToolSpec.Description == "") {
			return fmt.Errorf("toolConfig.tools.%d is not in order", i)
		}
	}
	if !found {
		return errors.New("toolConfig has no tools")
	}
	return nil
}

// checking goes through the messages: names of documents and ids of calls so far, and the calls that wait for their
// results.
type checking struct {
	names, ids map[string]bool
	open       []string
}

func (c *checking) message(role string, blocks []converseContent) error {
	if len(blocks) == 0 {
		return errors.New("content is empty")
	}
	if err := errors.Join(blankIn(blocks), c.results(role, blocks)); err != nil {
		return err
	}
	for i, b := range blocks {
		if err := errors.Join(c.call(role, b), c.media(role, b, blocks),
			b.ReasoningContent.check(role, i == len(blocks)-1)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reasoning) check(role string, last bool) error {
	if r == nil {
		return nil
	}
	switch text := r.ReasoningText; {
	case role != "assistant":
		return errors.New("user messages cannot contain reasoning content")
	case (text == nil) == (len(r.RedactedContent) == 0), text != nil && (text.Text == nil || text.Signature == ""):
		return errors.New("reasoning content has no text, no signature or two kinds")
	case last:
		return errors.New("the final block in an assistant message cannot be thinking")
	}
	return nil
}

// results checks that a message answers the calls of the one before it, each once, before anything else.
func (c *checking) results(role string, blocks []converseContent) error {
	var answered []string
	for i, b := range blocks {
		if b.ToolResult == nil {
			continue
		}
		if i != len(answered) || role != "user" {
			return errors.New("a toolResult must come first, in a message of the user")
		}
		if len(b.ToolResult.Content) == 0 {
			return errors.New("a toolResult is empty")
		}
		if err := blankIn(b.ToolResult.Content); err != nil {
			return err
		}
		answered = append(answered, b.ToolResult.ToolUseID)
	}
	slices.Sort(answered)
	slices.Sort(c.open)
	if !slices.Equal(answered, c.open) {
		return errors.New("each toolUse of the message before must have exactly one toolResult, and no other may be there")
	}
	c.open = nil
	return nil
}

func (c *checking) call(role string, b converseContent) error {
	if b.ToolUse == nil {
		return nil
	}
	if role != "assistant" || c.ids[b.ToolUse.ToolUseID] || !isObject(b.ToolUse.Input) ||
		!toolName.MatchString(b.ToolUse.Name) {
		return errors.New("a toolUse is the user's, has the id of another, no object for input or no proper name")
	}
	c.ids[b.ToolUse.ToolUseID] = true
	c.open = append(c.open, b.ToolUse.ToolUseID)
	return nil
}

func (c *checking) media(role string, b converseContent, beside []converseContent) error {
	for _, m := range []*media{b.Image, b.Document, b.Video} {
		if m != nil && (role != "user" || len(m.Source.Bytes) == 0 || !slices.Contains(formats, m.Format)) {
			return errors.New("an image or document is not the user's, is empty or of no known format")
		}
	}
	if b.Document == nil {
		return nil
	}
	name := b.Document.Name
	if !documentName.MatchString(name) || c.names[name] {
		return errors.New("a document has the name of another or no proper one")
	}
	c.names[name] = true
	if !slices.ContainsFunc(beside, func(b converseContent) bool { return b.Text != nil }) {
		return errors.New("a message with a document needs a text")
	}
	return nil
}

func blankIn(blocks []converseContent) error {
	for i, b := range blocks {
		if b.Text != nil && strings.TrimSpace(*b.Text) == "" {
			return fmt.Errorf("the text field in the ContentBlock object at content.%d is blank", i)
		}
	}
	return nil
}

func isObject(text json.RawMessage) bool {
	return json.Valid(text) && strings.HasPrefix(strings.TrimSpace(string(text)), "{")
}
