package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// servers is the SDK for the Model Context Protocol.
const servers = "github.com/modelcontextprotocol/go-sdk"

// clientSpans and clientEdits are of the SDK. A function is a client of servers and asks them for tools alone, but the SDK's tables of methods
// make it link the other half, its JSON Schema library and encoding/gob. What is left out is what package pkg/agent/mcp has switched off, or
// keeps from the SDK: answering a server's questions at once, its requests but ping, its notifications, prompts and resources. Its JSON is
// the standard library's; what a server answers is read by pkg/agent/mcp itself.
var clientSpans = map[string][]span{
	"mcp/server.go": {{
		from: "var serverMethodInfos = map[string]methodInfo{\n", until: "\n}\n\n// initializeMethodInfo", sum: "3f282004134982a4",
		new: `	methodDiscover:          newMethodInfo[*DiscoverParams, *DiscoverResult](missingParamsOK),
	methodInitialize:        newMethodInfo[*InitializeParams, *InitializeResult](0),
	methodListTools:         newMethodInfo[*ListToolsParams, *ListToolsResult](missingParamsOK),
	methodCallTool:          newMethodInfo[*CallToolParams, *CallToolResult](0),
	notificationCancelled:   newMethodInfo[*CancelledParams, *emptyResult](notification | missingParamsOK),
	notificationInitialized: newMethodInfo[*InitializedParams, *emptyResult](notification | missingParamsOK),`,
	}},
	"mcp/client.go": {{
		from: "var clientMethodInfos = map[string]methodInfo{\n", until: "}\n\nfunc (cs *ClientSession) sendingMethodInfos", sum: "ddbafa1a1ca882f1",
		new: "\tmethodPing: newClientMethodInfo(clientSessionMethod((*ClientSession).ping), missingParamsOK),\n",
	}},
}

var clientEdits = map[string][]edit{
	"mcp/client.go": {{
		`	if opts.MultiRoundTrip == nil || !opts.MultiRoundTrip.Disabled {
		c.AddSendingMiddleware(clientMultiRoundTripMiddleware())
	}
`, "",
	}},
	"mcp/server.go": {
		{"\t\"encoding/gob\"\n", ""},
		{
			`	encoder := gob.NewEncoder(&buf)
	if err := encoder.Encode(token); err != nil {
		return "", fmt.Errorf("failed to encode page token: %w", err)
	}
`, "\tbuf.WriteString(token.LastUID)\n",
		},
		{
			`	buf := bytes.NewBuffer(decodedBytes)
	decoder := gob.NewDecoder(buf)
	if err := decoder.Decode(&token); err != nil {
		return nil, fmt.Errorf("failed to decode page token: %w, cursor: %v", err, cursor)
	}
`, "\ttoken.LastUID = string(decodedBytes)\n",
		},
	},
	"internal/json/json.go": {
		{"\t\"github.com/segmentio/encoding/json\"\n", "\t\"encoding/json\"\n"},
		{"\tdec.DontMatchCaseInsensitiveStructFields()\n", ""},
	},
}

// span exchanges what stands between two texts, the first of which occurs once. It is named by its sum, since it is long.
type span struct {
	from, until string
	sum         string // hex SHA-256 of what stands there, the first 16 digits
	new         string
}

func exchange(source []byte, all []span) ([]byte, error) {
	text := string(source)
	for _, s := range all {
		before, rest, found := strings.Cut(text, s.from)
		old, after, ended := strings.Cut(rest, s.until)
		sum := sha256.Sum256([]byte(old))
		if got := hex.EncodeToString(sum[:8]); !found || !ended || strings.Contains(rest, s.from) || got != s.sum {
			return nil, fmt.Errorf("what stands between these is not what it was (%s, want %s); look at the new version and adapt internal/lambdamod:\n%s\n%s",
				got, s.sum, s.from, s.until)
		}
		text = before + s.from + s.new + s.until + after
	}
	return []byte(text), nil
}
