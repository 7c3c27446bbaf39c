package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// delegate checks the fields that only a tool of kind agent has. CheckAgents checks that the agent exists.
func (c *checker) delegate(at string, t ToolSpec) {
	switch {
	case t.Kind != KindAgent:
		c.that(t.Agent == nil, at+".agent", "got an agent, want none: only kind agent has one")
	case t.Agent == nil:
		c.add(at+".agent", "got nothing, want the name of an agent")
	default:
		c.form(ValidAgentName(t.Agent.Agent), at+".agent", t.Agent.Agent, agentNameForm)
		zeroOrMore(c, at+".budget.tokens", t.Agent.Tokens)
		c.that(t.Agent.USD >= 0, at+".budget.usd", "got less than zero, want zero or more")
	}
}

// maxDepth is the highest number of levels of delegated runs below a root run.
const maxDepth = 16

// ReservedHeaders are the header fields that the runtime or the connection sets.
var ReservedHeaders = []string{
	"accept-encoding", "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive",
	"proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// httpTool checks the request of a tool of kind http: the arguments of its schema have to fill the templates. Other
// tools have no request.
func (c *checker) httpTool(at string, t ToolSpec) {
	if t.Kind != KindHTTP {
		c.that(t.HTTP == nil, at+".url", "got a request, want none: only kind http has one")
		return
	}
	if t.HTTP == nil {
		c.add(at+".url", "got nothing, want the URL that a tool of kind http asks")
		return
	}
	h := t.HTTP
	// CONNECT and TRACE are missing, because they concern proxies and not the host.
	oneOf(c, at+".method", h.Method, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
	r := requestCheck{checker: c}
	if json.Unmarshal(t.Schema, &r) != nil { // CheckSchema reports the error
		r = requestCheck{checker: c}
	}
	r.url(at+".url", h)
	for _, name := range slices.Sorted(maps.Keys(h.Query)) {
		r.template(at+".query."+name, h.Query[name])
	}
	r.headers(at+".headers", h.Headers)
	if h.Body != nil {
		r.body(at+".body", h)
	}
	for i, host := range h.Allow {
		c.that(host != "" && !strings.ContainsAny(host, "/{}$@*\\ "), fmt.Sprintf("%s.allowHosts[%d]", at, i),
			"got something else, want host or host:port")
	}
}

// requestCheck checks the templates of one request.
type requestCheck struct {
	*checker `json:"-"`
	// top-level keys of the arguments' schema
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

func (c requestCheck) template(path, text string) []TemplatePart {
	parts, err := RequestParts(text)
	c.noError(path, err)
	for _, p := range parts {
		_, ok := c.Properties[p.Arg]
		c.that(p.Arg == "" || ok, path, "got {%s}, want the name of a property of schema", p.Arg)
	}
	return parts
}

func (c requestCheck) url(path string, h *HTTPTool) {
	u, err := h.Request()
	if err != nil {
		c.noError(path, err)
		return
	}
	for _, p := range c.template(path, u.Path) {
		c.that(p.Arg == "" || slices.Contains(c.Required, p.Arg), path,
			"got {%s} in the path, want a property that schema requires", p.Arg)
		c.that(!strings.ContainsAny(p.Text, "{}"), path, "got a brace in the path, want {name} or ${secret:NAME}")
	}
	for _, segment := range strings.Split(u.Path, "/") {
		c.that(segment != "." && segment != "..", path, "got . or .. in the path, want the path itself")
	}
	for _, q := range u.Query {
		c.that(!strings.ContainsAny(q.Name, "{}$"), path,
			"got a template as the name of a query parameter, want the name itself")
		for _, p := range c.template(path, q.Value) {
			c.that(!strings.ContainsAny(p.Text, "{}"), path, "got a brace in the query, want {name} or ${secret:NAME}")
		}
		_, twice := h.Query[q.Name]
		c.that(!twice, path, "got a query parameter that query has, too, want each once")
	}
}

func (c requestCheck) headers(at string, headers map[string]string) {
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		path, lower := at+"."+name, strings.ToLower(name)
		c.that(headerName.MatchString(name), path, "got no name of a header field, want one")
		c.that(!slices.Contains(ReservedHeaders, lower), path,
			"got a header field that is not the tool's to say, want none of that name")
		c.that(!seen[lower], path, "got a header field a second time, want each once")
		seen[lower] = true
		for _, p := range c.template(path, headers[name]) {
			c.that(!strings.ContainsFunc(p.Text, isControl), path, "got a control character, want none")
		}
		c.that(lower != "content-type" || strings.Contains(headers[name], "json"), path,
			"got another type, want one of JSON: that is what a body is")
	}
}

func (c requestCheck) body(path string, h *HTTPTool) {
	c.that(h.Method != "GET" && h.Method != "HEAD", path, "got a body, want none: %s has none", h.Method)
	v, err := decodeChecked(h.Body)
	if err != nil {
		c.add(path, "got what is no JSON, want the body")
		return
	}
	c.strings(path, v)
}

// strings checks every string of a body as a template.
func (c requestCheck) strings(path string, v any) {
	switch v := v.(type) {
	case string:
		c.template(path, v)
	case []any:
		for _, item := range v {
			c.strings(path, item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c.that(!strings.Contains(key, secretOpen), path, "got a secret as a key, want it as a value")
			c.strings(path, v[key])
		}
	}
}

const functionForm = "the name or ARN of a function of AWS Lambda"

// functionName matches FUNCTION, ACCOUNT:function:FUNCTION and arn:PARTITION:lambda:REGION:ACCOUNT:function:FUNCTION,
// each with an optional :VERSION or :ALIAS.
var functionName = regexp.MustCompile(`^((arn:[\w-]{1,20}:lambda:[\w-]{1,30}:)?[0-9]{12}:function:)?` +
	`[\w-]{1,64}(:(\$LATEST|[\w-]{1,128}))?$`)

// servers checks the definition's MCP servers. Problems never repeat values of headers and of the environment, because
// they may be secret.
func (c *checker) servers(at string, d *Definition) {
	seen := map[string]bool{}
	for i, m := range d.MCP {
		path := fmt.Sprintf("%s[%d]", at, i)
		c.form(serverName.MatchString(m.Name), path+".name", m.Name,
			"1 to 32 of a-z, 0-9, _ and -, the first a letter or digit")
		c.that(m.Name == "" || !seen[m.Name], path+".name", "got a server a second time, want each once")
		seen[m.Name] = true
		c.serverPlace(path, m)
		c.duration(path+".timeout", m.Timeout)
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
		c.form(validServerURL(m.URL), at+".url", m.URL, "an https URL, or an http one of this machine, without "+
			"credentials, fragment or ${secret:...}: secrets go into headers")
	case strings.TrimSpace(m.Command[0]) == "":
		c.add(at+".command[0]", "got nothing, want a program")
	}
	for i, arg := range m.Command {
		path := fmt.Sprintf("%s.command[%d]", at, i)
		c.that(!strings.ContainsRune(arg, 0), path, "got a zero byte, want an argument without")
		c.that(!strings.Contains(arg, secretOpen), path,
			"got a secret, want it in env: everybody on the machine sees arguments, and nothing is put in for it")
	}
	c.that(local || m.Dir == "", at+".dir", "got a folder, want none: only a command runs in one")
	c.that(local || len(m.Env) == 0, at+".env", "got an environment, want none: only a command has one")
	c.that(remote || len(m.Headers) == 0, at+".headers", "got headers, want none: only a url is sent them")
	for _, name := range jsonx.SortedKeys(m.Env) {
		path := KeyPath(at+".env", name)
		c.that(envName.MatchString(name), at+".env",
			"got a name that no variable has, want letters, digits and _, the first no digit")
		c.that(!strings.ContainsRune(m.Env[name], 0), path, "got a zero byte, want a text without")
		c.secretRefs(path, m.Env[name])
	}
	for _, name := range jsonx.SortedKeys(m.Headers) {
		path := KeyPath(at+".headers", name)
		c.that(headerName.MatchString(name) && !slices.Contains(ownHeaders, strings.ToLower(name)), at+".headers",
			"got a name that no header has, or that the connection sets itself, want another one")
		c.that(!strings.ContainsFunc(m.Headers[name], isControl), path, "got a control character, want a text without")
		c.secretRefs(path, m.Headers[name])
	}
}

// serverTools checks the patterns for a server's tools, as far as possible before the tools are known.
func (c *checker) serverTools(at string, d *Definition, m MCPServer) {
	seen := map[string]bool{}
	pattern := func(path, match string) {
		c.form(validPattern(match), path, match, "a pattern over the server's own names, such as read_*")
		name := m.Name + "." + match
		same := func(t ToolSpec) bool { return t.MCP == nil && t.ModelName() == ModelName(name) }
		if i := slices.IndexFunc(d.Tools, same); i >= 0 && !strings.Contains(match, "*") {
			c.add(path, "%s and the tool %s are both %s to the model, want different names", name, d.Tools[i].Name,
				ModelName(name))
		}
	}
	for _, p := range m.Tools {
		path := KeyPath(at+".tools", p.Match)
		pattern(path, p.Match)
		c.that(!seen[p.Match], path, "got a pattern a second time, want each once")
		seen[p.Match] = true
		c.enumOrNone(path+".effect", p.Effect)
		c.duration(path+".timeout", p.Timeout)
	}
	for i, match := range m.Allow {
		pattern(fmt.Sprintf("%s.allow[%d]", at, i), match)
	}
	for i, match := range m.Deny {
		c.form(validPattern(match), fmt.Sprintf("%s.deny[%d]", at, i), match,
			"a pattern over the server's own names, such as write_*")
	}
}

// secretRefs refuses a text with an incomplete reference to a secret.
func (c *checker) secretRefs(at, text string) {
	parts, err := SecretParts(text)
	if err != nil || slices.ContainsFunc(parts, func(p TemplatePart) bool { return strings.Contains(p.Text, "${") }) {
		c.add(at, "got ${ without what belongs behind it, want ${secret:NAME}, NAME 1 to 64 letters, digits, _, . and -")
	}
}

// KeyPath appends a key to a path in the form that problems show. Keys that could be confused with the path are quoted,
// and long ones are cut.
func KeyPath(at, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%.64q]", at, key)
	case at == "":
		return key
	}
	return at + "." + key
}

var (
	plainKey   = regexp.MustCompile(`^[\w$-]{1,64}$`)
	serverName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	envName    = regexp.MustCompile(`^[A-Za-z_]\w{0,127}$`)
	headerName = regexp.MustCompile("^[\\w!#$%&'*+.^`|~-]{1,128}$")
)

// validPattern reports whether s is a valid pattern over names of an MCP server's tools.
func validPattern(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// ownHeaders are the header fields that an MCP connection sets itself.
var ownHeaders = []string{
	"accept", "connection", "content-length", "content-type", "host", "last-event-id", "mcp-protocol-version",
	"mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade",
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// validServerURL reports whether s is a URL of an MCP server without credentials or secrets. It has to be https, unless
// the server is on this machine.
func validServerURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || strings.Contains(s, "${") {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && loopback
}

// MaxAttempts is how often a call may be attempted in one invocation.
const MaxAttempts = 20

// toolPolicy checks how calls of a tool are described, retried, limited and undone.
func (c *checker) toolPolicy(at string, t ToolSpec) {
	r := t.Retry
	c.that(r.Attempts >= 0 && r.Attempts <= MaxAttempts, at+".retry.attempts", "got %d, want 0 to %d", r.Attempts,
		MaxAttempts)
	c.that(r.Attempts <= 1 || t.Effect != run.EffectNonIdempotent, at+".retry.attempts",
		"got %d, want one: a tool of effect non_idempotent is entered at most once", r.Attempts)
	c.duration(at+".retry.backoff", r.Backoff)
	c.that(r.MaxBackoff == 0 || r.MaxBackoff >= r.Backoff, at+".retry.maxBackoff",
		"got less than backoff, want at least as much")
	_, err := parseTemplate("describe", t.Describe)
	c.noError(at+".describe", err)
	zeroOrMore(c, at+".concurrency", t.Concurrency)
	c.that(t.MaxResult >= 0 && t.MaxResult <= MaxResult, at+".maxResult", "got %d, want 0 to %d bytes", t.MaxResult,
		MaxResult)
	if t.AnsweredLater() {
		c.that(r == ToolRetry{}, at+".retry", "got a policy, want none: the call is sent out and answered later")
		c.that(t.Concurrency == 0, at+".concurrency", "got a bound, want none: the call is sent out and answered later")
	}
	if t.Undo != nil && t.Undo.Args != nil {
		c.noError(at+".undo.args", checkUndoArgs(t.Undo.Args, true))
	}
}

// toolName adds a problem unless name is the original name of a tool that the agent defines. It returns that tool. ok
// is also false, without a problem, for a tool of an MCP server, since those are unknown until the server has been
// asked.
func (c *checker) toolName(path string, d *Definition, name, suffix string) (t ToolSpec, ok bool) {
	t, ok = run.First(d.Tools, func(t ToolSpec) bool { return t.Name == name })
	isServer := func(m MCPServer) bool { return strings.HasPrefix(name, m.Name+".") }
	switch {
	case name == "":
		c.add(path, "got nothing, want the original name of a tool of this agent%s", suffix)
	case !ok && slices.ContainsFunc(d.MCP, isServer):
	case !ok:
		c.add(path, "got no tool of this agent, want the original name of one%s", suffix)
	default:
		return t, true
	}
	return t, false
}
