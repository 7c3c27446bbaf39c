package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
)

// handshake reads the answers with which a connection begins, and gives what the SDK is to know of them: which protocol
// is spoken. Whatever else a server says of itself there (its name, what it can, how it wants to be used) is read by
// nobody; nil = another method.
func (t *tap) handshake(method string) func(json.RawMessage) (json.RawMessage, error) {
	switch method {
	case "initialize":
		return t.initialized
	case "server/discover":
		return discovered
	}
	return nil
}

// initialized is the answer of older protocols. Whether the version is one that is spoken here is for the SDK to say.
func (t *tap) initialized(result json.RawMessage) (json.RawMessage, error) {
	var version string
	all, err := members(result, "protocolVersion")
	if err == nil {
		err = member(all, "protocolVersion", &version, "a text")
	}
	if err == nil && (version == "" || len(version) > maxVersion) {
		err = fmt.Errorf("want a text of 1 to %d bytes for the key protocolVersion", maxVersion)
	}
	if err != nil {
		return nil, fmt.Errorf("its answer to initialize cannot be read: %w", err)
	}
	t.protocol = version
	return json.Marshal(map[string]any{"protocolVersion": version, "capabilities": map[string]any{}, "serverInfo": map[string]any{"name": "", "version": ""}})
}

// discovered is the answer of newer ones. One without versions comes from a server that knows nothing of them: the SDK
// then asks as of old.
func discovered(result json.RawMessage) (json.RawMessage, error) {
	versions := []string{}
	all, err := members(result, "supportedVersions")
	switch {
	case errors.Is(err, errNoObject):
	case err == nil:
		err = member(all, "supportedVersions", &versions, "a list of texts")
		fallthrough
	default:
		if err != nil {
			return nil, fmt.Errorf("its answer to server/discover cannot be read: %w", err)
		}
	}
	return json.Marshal(map[string]any{"resultType": "complete", "supportedVersions": versions, "capabilities": map[string]any{}})
}
