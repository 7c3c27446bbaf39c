package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// listing is what a server says it has, held to the bounds; what of it can be used is for usable to say.
type listing struct {
	tools []definition // in the server's order, each name once
	left  []agent.LeftTool
	more  int // left ones that are not named
	size  int // bytes of tools
}

func (l *listing) find(name string) (definition, bool) {
	for _, d := range l.tools {
		if d.Name == name {
			return d, true
		}
	}
	return definition{}, false
}

func (l *listing) leave(name, why string) {
	if len(l.left) == maxLeft {
		l.more++
		return
	}
	l.left = append(l.left, agent.LeftTool{Name: visible(name), Why: why})
}

func (l *link) list(ctx context.Context) (listing, error) {
	out := &listing{}
	cursor := ""
	for range maxPages {
		x := &exchange{short: out.page}
		res, err := l.client.ListTools(withExchange(ctx, x), &sdk.ListToolsParams{Cursor: cursor})
		switch got := l.tap.settled(x); {
		case got.refusal != nil:
			return listing{}, refused(got.refusal)
		case err != nil:
			return listing{}, err // a page may still be under way
		case res.NextCursor == "":
			return *out, nil
		case res.NextCursor == cursor:
			return listing{}, errors.New("its list of tools begins again and again")
		}
		cursor = res.NextCursor
	}
	return listing{}, fmt.Errorf("its list of tools has more than %d pages", maxPages)
}

// page takes in one page and gives what the SDK is to know of it: the schemas of the tools that are kept, some of whose
// arguments it sends as headers.
func (l *listing) page(result json.RawMessage) (json.RawMessage, error) {
	tools, cursor, err := readPage(result)
	if err != nil {
		return nil, fmt.Errorf("it answered with something else than a list of tools: %w", err)
	}
	kept := []json.RawMessage{}
	for _, raw := range tools {
		d, err := read(raw)
		_, twice := l.find(d.Name)
		why := "" // it is not kept
		switch {
		case err != nil:
			why = err.Error()
		case twice:
			why = "the server lists it twice; the first one counts"
		case len(l.tools) == maxTools:
			why = fmt.Sprintf("a server may have at most %d tools", maxTools)
		case l.size+len(raw) > maxDefinitions:
			why = fmt.Sprintf("the definitions of a server's tools may have at most %d bytes in all", maxDefinitions)
		}
		if why != "" {
			l.leave(d.Name, why)
			continue
		}
		l.tools, l.size = append(l.tools, d), l.size+len(raw)
		short, err := jsonx.MarshalVerbatim(map[string]any{"name": d.Name, "inputSchema": d.InputSchema})
		if err != nil {
			return nil, err
		}
		kept = append(kept, short)
	}
	return json.Marshal(map[string]any{"tools": kept, "nextCursor": cursor})
}

// readPage returns the tools of one page and the cursor of the next one; "" = it is the last. A page whose tools are
// null has none.
func readPage(result json.RawMessage) (tools []json.RawMessage, cursor string, err error) {
	all, err := members(result, "tools", "nextCursor")
	if err != nil {
		return nil, "", err
	}
	if _, there := all["tools"]; !there {
		return nil, "", errors.New("it has no key tools")
	}
	if err := errors.Join(member(all, "tools", &tools, "a list"),
		member(all, "nextCursor", &cursor, "a text")); err != nil {
		return nil, "", err
	}
	if raw := all["nextCursor"]; cursor != "" {
		// it goes back as it came, or not at all
		if _, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{Bytes: maxCursor}); err != nil {
			return nil, "", fmt.Errorf("its nextCursor cannot be used: %w", err)
		}
	}
	return tools, cursor, nil
}

// What a server may send. Sizes are in bytes.
const (
	maxTools       = 256
	maxDefinition  = 256 << 10 // of one tool, as the server sent it: its schema of results may be long
	maxArguments   = 64 << 10  // of a tool's schema of arguments, which models read
	maxDefinitions = 512 << 10 // of all tools of a server
	maxPages       = 64        // of a list
	maxCursor      = 16 << 10  // of what asks for the next page
	maxVersion     = 64        // of a protocol's
	maxLeft        = 64        // tools that are named as left out; the others are counted
	maxDescription = 8 << 10   // of a tool's description, as the model reads it; the rest is cut
	maxTitle       = 200       // characters of a title

	maxMessage = 16 << 20       // of one message
	maxMCPBody = 2 * maxMessage // of one answer over HTTP: a stream of messages
	maxRefusal = 64 << 10       // of an answer over HTTP that says no
	maxIdle    = 4 << 20        // of all messages on one connection that answer nothing, such as notifications
	minMessage = 64             // what each of them counts beside its parameters

	maxMCPText = 8 << 20 // of a result's text; the runtime shortens what is long
	maxParts   = 1000    // of a result's content

	maxAsked = 16       // questions of one result
	maxState = 16 << 10 // of the state that a server wants back with the answers
)
