package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Problem is one error of a definition.
type Problem struct {
	Path string // keys of agent.yaml: permission.rules[0].when[1].gt
	Text string // the present value, if it may be shown, and the wanted one
}

func (p Problem) Error() string { return p.Path + ": " + p.Text }

// Problems are all errors of a definition, in the order of its keys.
type Problems []Problem

func (ps Problems) Error() string { return strings.Join(run.Map(ps, Problem.Error), "\n") }

// Check validates a resolved definition completely. A non-nil error is Problems. After Check, no run can fail for a
// reason that its definition shows.
func (d *Definition) Check() error {
	var c checker
	c.definition(d)
	for i, m := range d.Model.Chain() {
		c.modelChoice(chainPath(i), m)
	}
	for _, m := range d.Orchestrator.models() {
		c.modelChoice("orchestrator."+m.key, *m.spec)
	}
	for i, name := range d.Stop.OnTool {
		_, ok := d.Tool(name)
		fromServer := slices.ContainsFunc(d.MCP, func(m MCPServer) bool { // a server whose tools are not listed yet
			own, ok := strings.CutPrefix(name, m.Name+".")
			return ok && own != "" && m.Wants(own)
		})
		c.that(ok || fromServer, fmt.Sprintf("stop.onTool[%d]", i),
			"got no tool of this agent, want the original name of one")
	}
	return c.err()
}

// CheckPinned is Check for a definition that a run is pinned to: its ceilings were set when the run started.
func (d *Definition) CheckPinned() error {
	own := *d
	own.Ceilings = nil
	return own.Check()
}

// CheckWithoutModel is Check for a definition whose model provider, id and file are not chosen yet.
func (d *Definition) CheckWithoutModel() error {
	var c checker
	c.definition(d)
	return c.err()
}

// CheckTools checks a list of tools as Check does.
func CheckTools(tools []ToolSpec) error {
	var c checker
	c.toolsOf(tools, nil)
	return c.err()
}

// checker collects problems.
type checker struct{ problems Problems }

func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	return c.problems
}

func (c *checker) add(path, format string, args ...any) {
	c.problems = append(c.problems, Problem{path, fmt.Sprintf(format, args...)})
}

func (c *checker) that(ok bool, path, format string, args ...any) {
	if !ok {
		c.add(path, format, args...)
	}
}

func (c *checker) noError(path string, err error) { c.that(err == nil, path, "%v", err) }

func zeroOrMore[T int | int64](c *checker, path string, got T) {
	c.that(got >= 0, path, "got %d, want zero or more", got)
}

func (c *checker) duration(path string, got time.Duration) {
	c.that(got >= 0, path, "got less than zero, want a duration")
}

func oneOf[T ~string](c *checker, path string, got T, want ...T) {
	if slices.Contains(want, got) {
		return
	}
	shown := "nothing"
	if got != "" {
		shown = fmt.Sprintf("%.40q", string(got))
	}
	c.add(path, "got %s, want %s", shown, strings.Join(words(want...), " or "))
}

// form refuses free text of the wrong form. The problem does not repeat the text.
func (c *checker) form(ok bool, path, got, want string) {
	switch {
	case ok:
	case got == "":
		c.add(path, "got nothing, want %s", want)
	default:
		c.add(path, "got something else, want %s", want)
	}
}

func (c *checker) definition(d *Definition) {
	c.form(ValidAgentName(d.Name), "name", d.Name, agentNameForm)
	c.enum("preset", d.Preset)
	c.that(d.System != "" || d.Builder != "", "system", "got nothing, want the agent's instructions, or a builder")
	c.noError("system", CheckSystem(d.System, d.SystemPrompt))
	c.chain(d)
	c.toolsOf(d.Tools, d.MCP)
	// Refuse tools that the model could confuse with the built-in one that reads the rest of results.
	for i, t := range d.Tools {
		c.that(!d.KeepsWhole() || t.ModelName() != ReadMore, fmt.Sprintf("tools[%d].name", i),
			"%s is the name of a built-in tool, want another one, or context.keepWhole: false", ReadMore)
	}
	c.servers("mcp", d)
	for i, t := range d.Tools {
		if t.Undo != nil {
			c.toolName(fmt.Sprintf("tools[%d].undo.tool", i), d, t.Undo.Tool, "")
		}
	}
	c.preconditions(d)
	c.permission("permission", d.Permission)
	if name := d.Permission.ApprovalTool; name != "" {
		at := "permission.approvalTool"
		c.that(d.Permission.Mode == ModeAdvisory, at, "got a tool, want none: only mode advisory has one")
		t, ok := d.Tool(name)
		c.that(ok && t.Kind == KindService, at, "got %.64q, want a tool of the agent of kind service", name)
	}
	c.that(len(d.Ceilings) == 0, "ceilings",
		"got %d, want none: they are the policies of the agents that delegate a run, and set when it starts",
		len(d.Ceilings))
	c.stop("stop", d.Stop)
	c.limits("limits", d.Limits)
	c.enum("batch", d.Batch)
	c.enum("executor", d.Executor)
	c.enum("wait", d.Wait)
	c.enum("resume", d.Resume)
	c.enum("textBesideCalls", d.TextBesideCalls)
	c.enum("permission.early", d.Early)
	c.anySchema("input.schema", d.Input.Schema)
	c.enumOrNone("output.format", d.Output.Format)
	c.that(d.Output.Schema == nil || d.Output.Format == OutputJSON, "output.schema",
		"got a schema, want none: only an output of format json has one")
	c.anySchema("output.schema", d.Output.Schema)
	c.enumOrNone("corrections", d.Corrections)
	c.enumOrNone("systemPrompt", d.SystemPrompt)
	c.plugins("plugins", d.Plugins)
	c.enumOrNone("dropped", d.Dropped)
	c.enumOrNone("cutText", d.CutText)
	c.enumOrNone("text", d.Text)
	c.analysis("analysis", d.Analysis)
	zeroOrMore(c, "guards.failedRounds", d.Guards.FailedRounds)
	zeroOrMore(c, "guards.toolFailures", d.Guards.ToolFailures)
	c.dialect(d)
	c.prompt("prompt", d)
	c.context("context", d.Context)
	c.orchestrator("orchestrator", d)
	c.prefilter("prefilter", d.Prefilter)
	c.wording("wording", d.Wording)
	c.form(d.Builder == "" || ValidToolName(d.Builder), "builder", d.Builder, "dotted parts of letters, digits, _ and -")
}

func (c *checker) limits(at string, l Limits) {
	zeroOrMore(c, at+".tokens", l.Tokens)
	c.amount(at+".usd", &l.USD)
	c.that(l.Depth >= 0 && l.Depth <= maxDepth, at+".depth", "got %d, want 1 to %d", l.Depth, maxDepth)
	c.that(l.Children >= 0 && l.Children <= MaxChildren, at+".children", "got %d, want 1 to %d", l.Children, MaxChildren)
	c.that(l.Interactions > 0, at+".interactions", "got %d, want more than zero", l.Interactions)
	zeroOrMore(c, at+".asks", l.Asks)
	c.that(l.Open >= 0, at+".open", "got %d, want zero (the default of %d) or more", l.Open, DefaultOpen)
	zeroOrMore(c, at+".parallel", l.Parallel)
	zeroOrMore(c, at+".grace", l.Grace)
	c.enum(at+".onLimit", l.OnLimit)
	c.enumOrNone(at+".validators", l.Validators)
	c.enumOrNone(at+".onBudget", l.OnBudget)
	if p := l.Period; p != nil {
		c.enum(at+".period.every", p.Every)
		c.amount(at+".period.usd", &p.USD)
		c.that(p.Tokens >= 0 && (p.Tokens > 0 || p.USD > 0), at+".period",
			"got neither tokens nor usd, want one of them, above zero")
	}
}

// amount checks money; nil is none.
func (c *checker) amount(at string, u *run.USD) {
	c.that(u == nil || *u >= 0 && *u%1_000_000 == 0, at, "got %s, %v", u, jsonx.ErrUSD)
}

// plugins checks the names and the form of configurations. Package hook checks that the plugins exist and accept them.
func (c *checker) plugins(at string, specs []PluginSpec) {
	seen := map[string]bool{}
	for i, p := range specs {
		path := fmt.Sprintf("%s[%d]", at, i)
		c.form(ValidAgentName(p.Name), path+".name", p.Name, agentNameForm)
		c.that(!seen[p.Name], path+".name", "got a plugin for the second time, want each of them once")
		seen[p.Name] = true
		_, err := jsonx.CompactJSON(p.Config, jsonx.JSONLimits{})
		c.that(p.Config == nil || err == nil, path+".config", "got what is no JSON, want the plugin's configuration")
	}
}

func (c *checker) modelChoice(at string, m ModelSpec) {
	switch m.Provider {
	case "bedrock", "openai":
		c.that(m.ID != "", at+".id", "got nothing, want the model's id")
	case "script":
		c.that(m.File != "", at+".file", "got nothing, want a file of replies")
	case "":
		c.add(at+".provider", "got nothing, want a model")
	default:
		oneOf(c, at+".provider", m.Provider, "bedrock", "openai", "script", "demo")
	}
}

func chainPath(place int) string {
	if place == 0 {
		return "model"
	}
	return fmt.Sprintf("model.fallbacks[%d]", place-1)
}

// chain checks the settings of every model in the chain, and those of the chain as a whole.
func (c *checker) chain(d *Definition) {
	for i, m := range d.Model.Chain() {
		c.modelSettings(chainPath(i), m)
		c.price(chainPath(i)+".price", d.Limits, m.Price)
	}
	for i, m := range d.Model.Fallbacks {
		at := chainPath(i + 1)
		c.that(len(m.Fallbacks) == 0, at+".fallbacks", "got a list, want none: a fallback has none itself")
		c.that(m.StaticText == "", at+".staticText", "got a text, want none: it stands behind the whole chain")
		c.that(m.Continuations == 0, at+".continuations", "got a number, want none: it is the whole chain's")
		c.that(m.MoveOn == nil, at+".moveOn", "got a list, want none: it is the whole chain's")
		c.that(m.CutStream == "", at+".cutStream", "got a word, want none: it is the whole chain's")
		c.that(m.Repair == "", at+".repair", "got a word, want none: it is the whole chain's")
		c.that(m.Busy == "", at+".busy", "got a word, want none: it is the whole chain's")
	}
	// the first model has the settings that apply to the whole chain
	for i, class := range d.Model.MoveOn {
		c.enum(fmt.Sprintf("model.moveOn[%d]", i), class)
	}
	c.enumOrNone("model.cutStream", d.Model.CutStream)
	c.enumOrNone("model.repair", d.Model.Repair)
	c.enumOrNone("model.busy", d.Model.Busy)
	zeroOrMore(c, "model.continuations", d.Model.Continuations)
	c.that(d.Output.Check == "" || d.Output.Format == OutputJSON, "output.check",
		"got a name, want none: it checks JSON, and output.format is text")
	if d.Model.StaticText != "" && d.Output.Format == OutputJSON {
		_, err := jsonx.CompactJSON([]byte(d.Model.StaticText), OutputLimits)
		c.that(err == nil, "model.staticText", "got text, want one JSON value: output.format is json")
	}
}

// price requires the price of a model whose run has a limit in US dollars.
func (c *checker) price(at string, l Limits, p *Price) {
	const want = "got nothing, want what the model costs: limits.%s is set"
	c.that(l.USD == 0 || p != nil, at, want, "usd")
	c.that(l.Period == nil || l.Period.USD == 0 || p != nil, at, want, "period.usd")
}

func (c *checker) stop(at string, s Stop) {
	zeroOrMore(c, at+".rounds", s.Rounds)
	c.duration(at+".timeout", s.Timeout)
	zeroOrMore(c, at+".tokens", s.Tokens)
	zeroOrMore(c, at+".consecutiveErrors", s.ConsecutiveErrors)
	c.that(s.LoopWindow == 0 || s.LoopWindow >= 2 && s.LoopWindow <= MaxLoopWindow, at+".loopWindow",
		"got %d, want 0 or 2 to %d", s.LoopWindow, MaxLoopWindow)
}

func (c *checker) modelSettings(at string, m ModelSpec) {
	c.server(at, m)
	zeroOrMore(c, at+".maxTokens", m.MaxTokens)
	c.that(m.Temperature == nil || *m.Temperature >= 0 && *m.Temperature <= 2, at+".temperature",
		"got something else, want 0 to 2")
	c.enumOrNone(at+".cache", m.Cache)
	c.that(m.Options == nil || IsJSONObject(m.Options), at+".options", "got something else, want a mapping")
	var options map[string]json.RawMessage
	if m.Provider == "openai" && json.Unmarshal(m.Options, &options) == nil {
		for _, key := range []string{"messages", "model", "stream", "tools"} {
			_, there := options[key]
			c.that(!there, at+".options."+key, "got a value, want none: the rest of the definition decides it")
		}
	}
	c.that(m.Key == "" || m.Provider == "openai", at+".key", "got one, want none: only provider openai takes a key")
	c.that(m.Retry.Attempts > 0, at+".retry.attempts", "got %d, want more than zero", m.Retry.Attempts)
	c.duration(at+".retry.backoff", m.Retry.Backoff)
	c.duration(at+".retry.window", m.Retry.Window)
	c.that(m.Retry.Jitter >= 0 && m.Retry.Jitter <= 100, at+".retry.jitter", "got %d, want 0 to 100 percent",
		m.Retry.Jitter)
	c.duration(at+".timeout", m.Timeout)
	if p := m.Price; p != nil {
		c.amount(at+".price.input", &p.Input)
		c.amount(at+".price.output", &p.Output)
		c.amount(at+".price.cacheRead", p.CacheRead)
		c.amount(at+".price.cacheWrite", p.CacheWrite)
	}
	for i, class := range m.Retry.On {
		oneOf(c, fmt.Sprintf("%s.retry.on[%d]", at, i), class, ModelErrorClasses()[:5]...)
	}
	c.that(m.Retry.MaxBackoff >= m.Retry.Backoff, at+".retry.maxBackoff", "got less than backoff, want at least as much")
}

// server refuses a base URL that could hold a credential, and a key that is not a reference to a secret.
func (c *checker) server(at string, m ModelSpec) {
	u, err := url.Parse(m.BaseURL)
	valid := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		(u.RawQuery == "" || apiVersion.MatchString(u.RawQuery)) && !u.ForceQuery && u.Fragment == ""
	c.form(m.BaseURL == "" || valid, at+".baseURL", m.BaseURL,
		"an http or https URL without credentials, fragment or any query but api-version")
	_, ok := m.KeySecret()
	c.that(ok || m.Key == "", at+".key", "got something else, want ${secret:NAME}: keys do not belong into agent files")
}

// KeySecret returns the name of the secret with the model's key. ok is false if Key is not a reference to a secret.
func (m ModelSpec) KeySecret() (name string, ok bool) {
	parts, err := SecretParts(m.Key)
	if err != nil || len(parts) != 1 {
		return "", false
	}
	return parts[0].Secret, parts[0].Secret != ""
}

// IsJSONObject reports whether raw is one JSON object.
func IsJSONObject(raw json.RawMessage) bool {
	_, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{})
	return err == nil && jsonx.JSONKind(raw) == '{'
}

// apiVersion matches the only query that a model's base URL may have. Azure needs it.
var apiVersion = regexp.MustCompile(`^api-version=[0-9A-Za-z.-]{1,40}$`)

func (c *checker) toolsOf(tools []ToolSpec, servers []MCPServer) {
	taken := map[string]string{} // model-facing name to original
	for i, t := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		c.tool(at, t)
		if t.Kind == KindMCP { // only in a definition whose servers have been listed
			known := func(m MCPServer) bool { return m.Name == t.MCP.Server }
			if t.MCP == nil || t.MCP.Digest == "" || !slices.ContainsFunc(servers, known) {
				c.add(at+".kind", "got mcp, want internal or service: servers stand under mcp, and their tools are listed when a "+
					"run begins")
			}
		}
		first, ok := taken[t.ModelName()]
		switch {
		case !ok:
			taken[t.ModelName()] = t.Name
		case first == t.Name:
			c.add(at+".name", "got a tool a second time, want each once")
		default:
			c.add(at+".name", "%s and %s are both %s to the model, want different names", first, t.Name, t.ModelName())
		}
	}
}

func (c *checker) tool(at string, t ToolSpec) {
	switch {
	case !ValidToolName(t.Name):
		c.form(false, at+".name", t.Name, "dotted parts of letters, digits, _ and -")
	case !ValidWord(t.ModelName()):
		c.add(at+".name", "got %d characters, want at most 64", len(t.Name))
	}
	if t.Kind != KindMCP { // toolsOf checks that
		c.enum(at+".kind", t.Kind)
	}
	switch {
	case t.Kind != KindLambda:
		c.that(t.Lambda == nil, at+".function", "got a function, want none: only a tool of kind lambda has one")
	case t.Lambda == nil:
		c.form(false, at+".function", "", functionForm)
	default:
		c.form(functionName.MatchString(t.Lambda.Function), at+".function", t.Lambda.Function, functionForm)
	}
	c.httpTool(at, t)
	c.delegate(at, t)
	c.that(t.Kind == KindService || t.Event == "", at+".event", "got an event, want none: only a service has one")
	c.that(t.Kind == KindService || t.Kind == KindAgent || t.Domain == "", at+".domain",
		"got a domain, want none: only a service and an agent have one")
	c.that(len(t.Event) <= maxEventType, at+".event", "got %d bytes, want at most %d", len(t.Event), maxEventType)
	c.that(!t.AnsweredLater() || t.Timeout == 0 || t.Timeout >= minAnswer, at+".timeout",
		"got less than a minute, want a minute or more: so long it has to answer")
	c.enum(at+".effect", t.Effect)
	c.duration(at+".timeout", t.Timeout)
	c.toolPolicy(at, t)
	c.noError(at+".schema", CheckSchema(t.Schema))
}

// maxEventType is the longest type of an event that a bus accepts, in bytes. minAnswer is the shortest time that a
// service has to answer.
const (
	maxEventType = 128
	minAnswer    = time.Minute
)

// CheckSchema returns an error unless raw is a JSON Schema of an object without references outside itself, as tools
// need (R14).
func CheckSchema(raw json.RawMessage) error {
	schema, err := ReadSchema(raw)
	if err == nil && schema["type"] != "object" {
		err = errors.New("want a JSON Schema with type: object")
	}
	return cmp.Or(err, selfContained(schema))
}

// anySchema refuses a schema that is not a mapping or has references outside itself. A nil schema is accepted.
func (c *checker) anySchema(at string, raw json.RawMessage) {
	if raw == nil {
		return
	}
	schema, err := ReadSchema(raw)
	if err == nil && schema == nil {
		err = errors.New("want a JSON Schema, a mapping")
	}
	c.noError(at, cmp.Or(err, selfContained(schema)))
}

// ReadSchema decodes strict JSON. It returns nil for JSON that is not a mapping.
func ReadSchema(raw json.RawMessage) (map[string]any, error) {
	v, err := decodeChecked(raw)
	schema, _ := v.(map[string]any)
	return schema, err
}

// decodeChecked decodes strict JSON within the default limits.
func decodeChecked(raw json.RawMessage) (any, error) {
	compact, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{})
	if err != nil {
		return nil, err
	}
	return jsonx.DecodeNumbers(compact)
}

func selfContained(schema any) error {
	if refersOutside(schema) {
		return errors.New("got a $ref to another document, want references that start with #")
	}
	return nil
}

func refersOutside(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, refersOutside)
	case map[string]any:
		for key, child := range v {
			target, ok := child.(string)
			isRef := key == "$ref" || key == "$dynamicRef"
			if isRef && ok && !strings.HasPrefix(target, "#") || refersOutside(child) {
				return true
			}
		}
	}
	return false
}
