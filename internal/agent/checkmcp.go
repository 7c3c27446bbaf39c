package agent

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// The bounds of what is said of a server.
const (
	maxServerName = 32 // so that its tools' names have room
	maxPattern    = 128
)

// mcpHint stands where a tool of a server is written as a tool of the agent.
const mcpHint = "got mcp, want internal or service: servers stand under mcp, and their tools are listed when a run begins"

// servers checks what the definition says of MCP servers. Values of headers and of the environment are never repeated: they may be secret.
func (c *checker) servers(at string, d *Definition) {
	seen := map[string]bool{}
	for i, m := range d.MCP {
		path := fmt.Sprintf("%s[%d]", at, i)
		c.form(validServerName(m.Name), path+".name", m.Name, "1 to 32 of a-z, 0-9, _ and -, the first a letter or digit")
		c.that(m.Name == "" || !seen[m.Name], path+".name", "got a server a second time, want each once")
		seen[m.Name] = true
		c.serverPlace(path, m)
		c.that(m.Timeout >= 0, path+".timeout", "got less than zero, want a duration")
		c.serverTools(path, d, m)
	}
}

// serverPlace checks how the server is reached.
func (c *checker) serverPlace(at string, m MCPServer) {
	local, remote := len(m.Command) > 0, m.URL != ""
	switch {
	case local && remote:
		c.add(at+".url", "got a url beside a command, want one of them")
	case !local && !remote:
		c.add(at+".url", "got neither a url nor a command, want one of them")
	case remote:
		c.form(validServerURL(m.URL), at+".url", m.URL, "an https URL, or an http one of this machine, without credentials, fragment or ${secret:...}: secrets go into headers")
	case strings.TrimSpace(m.Command[0]) == "":
		c.add(at+".command[0]", "got nothing, want a program")
	}
	for i, arg := range m.Command {
		c.that(!strings.ContainsRune(arg, 0), fmt.Sprintf("%s.command[%d]", at, i), "got a zero byte, want an argument without")
	}
	c.that(local || m.Dir == "", at+".dir", "got a folder, want none: only a command runs in one")
	c.that(local || len(m.Env) == 0, at+".env", "got an environment, want none: only a command has one")
	c.that(remote || len(m.Headers) == 0, at+".headers", "got headers, want none: only a url is sent them")
	for _, name := range sortedKeys(m.Env) {
		path := keyPath(at+".env", name)
		c.that(validEnvName(name), at+".env", "got a name that no variable has, want letters, digits and _, the first no digit")
		c.that(!strings.ContainsRune(m.Env[name], 0), path, "got a zero byte, want a text without")
		c.secretRefs(path, m.Env[name])
	}
	for _, name := range sortedKeys(m.Headers) {
		path := keyPath(at+".headers", name)
		c.that(validHeaderName(name), at+".headers", "got a name that no header has, or that the connection sets itself, want another one")
		c.that(!strings.ContainsFunc(m.Headers[name], isControl), path, "got a control character, want a text without")
		c.secretRefs(path, m.Headers[name])
	}
}

// serverTools checks what is said of the server's tools, as far as it can be wrong before they are known.
func (c *checker) serverTools(at string, d *Definition, m MCPServer) {
	seen := map[string]bool{}
	own := map[string]string{}
	for _, t := range d.Tools {
		if t.MCP == nil {
			own[t.ModelName()] = t.Name
		}
	}
	pattern := func(path, match string) {
		c.form(validPattern(match), path, match, "a pattern over the server's own names, such as read_*")
		name := m.Name + "." + match
		if other, taken := own[ModelName(name)]; taken && !strings.Contains(match, "*") {
			c.add(path, fmt.Sprintf("%s and the tool %s are both %s to the model, want different names", name, other, ModelName(name)))
		}
	}
	for _, p := range m.Tools {
		path := keyPath(at+".tools", p.Match)
		pattern(path, p.Match)
		c.that(!seen[p.Match], path, "got a pattern a second time, want each once")
		seen[p.Match] = true
		if p.Effect != "" {
			oneOf(c, path+".effect", p.Effect, EffectRead, EffectIdempotent, EffectNonIdempotent)
		}
		c.that(p.Timeout >= 0, path+".timeout", "got less than zero, want a duration")
	}
	for i, match := range m.Allow {
		pattern(fmt.Sprintf("%s.allow[%d]", at, i), match)
	}
	for i, match := range m.Deny {
		c.form(validPattern(match), fmt.Sprintf("%s.deny[%d]", at, i), match, "a pattern over the server's own names, such as write_*")
	}
}

// secretRefs wants every reference to a secret in a text to be whole.
func (c *checker) secretRefs(at, text string) {
	for {
		_, rest, found := strings.Cut(text, "${")
		if !found {
			return
		}
		name, after, closed := strings.Cut(rest, "}")
		ref, isSecret := strings.CutPrefix(name, "secret:")
		if !closed || !isSecret || !validSecretName(ref) {
			c.add(at, "got ${ without what belongs behind it, want ${secret:NAME}, NAME 1 to 64 letters, digits, _, . and -")
			return
		}
		text = after
	}
}

// FromServer reports whether a tool of that original name may be one of d's servers', which nobody has listed yet.
func (d *Definition) FromServer(tool string) bool {
	return slices.ContainsFunc(d.MCP, func(m MCPServer) bool {
		name, ok := strings.CutPrefix(tool, m.Name+".")
		return ok && name != "" && m.Wants(name)
	})
}

// mcpTool checks a tool of a server as a definition has it once the server is listed.
func (c *checker) mcpTool(at string, t ToolSpec, servers []MCPServer) {
	known := func(m MCPServer) bool { return m.Name == t.MCP.Server }
	if t.MCP == nil || t.MCP.Digest == "" || !slices.ContainsFunc(servers, known) {
		c.add(at+".kind", mcpHint)
	}
}

// keyPath is the path of a key that somebody has chosen, as the reader of agent files writes it.
func keyPath(at, key string) string {
	const plain = letters + digits + "_$-"
	if !spelled(key, plain, plain, 64) {
		return fmt.Sprintf("%s[%.64q]", at, key)
	}
	return at + "." + key
}

// ValidServerName reports whether s may name an MCP server of an agent: ^[a-z0-9][a-z0-9_-]{0,31}$.
func ValidServerName(s string) bool { return validServerName(s) }

func validServerName(s string) bool {
	const first = lowercase + digits
	return spelled(s, first, first+"_-", maxServerName)
}

// validPattern reports whether s may be a pattern over the names that servers give their tools.
func validPattern(s string) bool {
	return s != "" && len(s) <= maxPattern && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func validSecretName(s string) bool {
	const name = letters + digits + "_.-"
	return spelled(s, name, name, 64)
}

func validEnvName(s string) bool { return spelled(s, letters+"_", letters+digits+"_", 128) }

// ownHeaders are what a connection says itself.
var ownHeaders = []string{
	"accept", "connection", "content-length", "content-type", "host", "last-event-id", "mcp-protocol-version", "mcp-session-id", "te", "trailer",
	"transfer-encoding", "upgrade",
}

func validHeaderName(s string) bool {
	const name = letters + digits + "!#$%&'*+-.^_`|~"
	return spelled(s, name, name, 128) && !slices.Contains(ownHeaders, strings.ToLower(s))
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// validServerURL wants a URL that nobody on the way can read, unless there is no way.
func validServerURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || strings.Contains(s, "${") {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
