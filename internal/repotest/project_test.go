package repotest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// asItIs is the project as it is, read once: nothing changes it.
var asItIs = sync.OnceValues(func() (*Project, error) { return Read(root, nil) })

func project(t *testing.T, replace func(file, text string) string) *Project {
	t.Helper()
	read := asItIs
	if replace != nil {
		read = func() (*Project, error) { return Read(root, replace) }
	}
	p, err := read()
	require.NoError(t, err)
	return p
}

// What cannot be read is refused with its line.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":       {"a: [", "read template"},
		"nothing":       {"", "want one document"},
		"two documents": {"a: 1\n---\nb: 1\n", "want one document"},
		"a key twice":   {"a: 1\nb: 1\na: 2\n", "already defined at [1:1]"},
		"an anchor":     {"a: &x 1\nb: 1\n", "line 1: Anchor"},
		"an alias":      {"a: 1\nb: *x\n", "line 2: Alias"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseYAML([]byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// everything are parameters by which every statement is there.
func everything(p *Project) Values {
	all := Values{}
	for _, e := range p.Template.Get("Parameters").Entries {
		if e.Value.Get("Default").String() == "" {
			all[e.Key] = e.Key
		}
	}
	all["Streaming"] = "on"
	delete(all, "LocalEndpoint")
	all["MaxRunningRuns"] = "1"
	return p.Deployed(all)
}

// Each role may do exactly what testdata/roles.txt says, and nothing else (R16).
func TestRoles(t *testing.T) {
	p := project(t, nil)
	var all []string
	for _, r := range p.Resources(roleType) {
		lines, err := p.Lines(r.ID, everything(p))
		require.NoError(t, err)
		for _, l := range lines {
			all = append(all, r.ID+": "+l.Text)
		}
	}
	slices.Sort(all)
	got := strings.Join(all, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/roles.txt", []byte(got), 0o600))
	}
	want, err := os.ReadFile("testdata/roles.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "a role has changed: look at it, and run with -update")
}

// Each role is assumed by one service.
func TestTrust(t *testing.T) {
	want := map[string]string{"StateMachineRole": "states.amazonaws.com", "EventsRole": "events.amazonaws.com",
		"SweepTimerRole": "scheduler.amazonaws.com"}
	for _, r := range project(t, nil).Resources(roleType) {
		service := want[r.ID]
		if service == "" {
			service = "lambda.amazonaws.com"
		}
		if r.ID == "OperatorsRole" {
			requireOperatorsPinned(t, r)
			continue
		}
		trust := r.Properties.Get("AssumeRolePolicyDocument", "Statement").Each()
		require.Len(t, trust, 1, r.ID)
		require.Equal(t, "{Service: "+service+"}", trust[0].Get("Principal").Short(), r.ID)
		require.Equal(t, "sts:AssumeRole", trust[0].Get("Action").Short(), r.ID)
	}
}

// Whoever assumes the role of operators has the name that IAM or their identity provider gave them. A session with a source identity
// may keep it, or STS refuses it the role; one without gets none here.
func requireOperatorsPinned(t *testing.T, r Resource) {
	t.Helper()
	conditions := map[string]string{}
	for _, s := range r.Properties.Get("AssumeRolePolicyDocument", "Statement").Each() {
		require.Equal(t, "{AWS: OperatorsPrincipal}", s.Get("Principal").Short())
		conditions[s.Get("Action").Short()] = s.Get("Condition").Short()
	}
	require.Equal(t, map[string]string{
		"sts:AssumeRole":        "{StringEquals: {sts:RoleSessionName: [${aws:username}, ${aws:SourceIdentity}]}}",
		"sts:SetSourceIdentity": "{Null: {aws:SourceIdentity: false}}",
	}, conditions)
	require.Equal(t, "UseOperators", r.Node.Get("Condition").String())
}

// The function URL asks IAM who calls and streams. Operators may call it, and never invoke its function with an event of
// their own; nobody else may, nor is there a URL unless it is asked for.
func TestStreamUrl(t *testing.T) {
	p := project(t, nil)
	urls := p.Resources("AWS::Lambda::Url")
	require.Len(t, urls, 1)
	require.Equal(t, "UseStreaming", urls[0].Node.Get("Condition").String())
	require.Equal(t, "{TargetFunctionArn: ${HttpFunction.Arn}:live, AuthType: AWS_IAM, InvokeMode: RESPONSE_STREAM, Cors: {AllowOrigins: CorsOrigins, "+
		"AllowMethods: [GET, POST], AllowHeaders: [authorization, content-type, last-event-id, x-amz-content-sha256, x-amz-date, x-amz-security-token], "+
		"MaxAge: 3600} or AWS::NoValue}", urls[0].Properties.Short())
	for _, streaming := range []string{"off", "on"} {
		v := p.Deployed(Values{"OperatorsPrincipal": "arn:aws:iam::123456789012:root", "Streaming": streaming})
		there, err := p.Holds("UseStreaming", v)
		require.NoError(t, err)
		require.Equal(t, streaming == "on", there)
		for _, r := range p.Resources(roleType) {
			lines, err := p.Lines(r.ID, v)
			require.NoError(t, err)
			permits := func(action string, context map[string][]string) bool {
				_, ok := Permit(lines, Request{Action: action, Resource: v["HttpFunction.Arn"] + ":live", Context: context})
				return ok
			}
			byURL := map[string][]string{"lambda:InvokedViaFunctionUrl": {"true"}}
			calls := there && r.ID == "OperatorsRole"
			require.Equal(t, calls, permits("lambda:InvokeFunctionUrl", nil), "%s %s", r.ID, streaming)
			require.Equal(t, calls, permits("lambda:InvokeFunction", byURL), "%s %s", r.ID, streaming)
			require.False(t, permits("lambda:InvokeFunction", nil), "%s %s", r.ID, streaming)
		}
	}
}

var (
	shellVariable = regexp.MustCompile(`\$\{?([A-Za-z_][A-Za-z0-9_]*)`)
	codeBlock     = regexp.MustCompile("(?s)```sh\n(.*?)```")
	named         = regexp.MustCompile("`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:=[^`]*)?`")
)

// What the runbook's commands and sentences name is there: outputs in its commands, and parameters, outputs or resources
// in its words.
func TestRunbook(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs/deploy.md"))
	require.NoError(t, err)
	p := project(t, nil)
	commands := 0
	for _, block := range codeBlock.FindAllStringSubmatch(string(b), -1) {
		for _, m := range shellVariable.FindAllStringSubmatch(block[1], -1) {
			if strings.HasPrefix(m[1], "AWS_") {
				continue
			}
			require.NotNil(t, p.Template.Get("Outputs", m[1]), "docs/deploy.md: $%s: want an output of the stack", m[1])
			commands++
		}
	}
	require.Positive(t, commands)
	for _, m := range named.FindAllStringSubmatch(string(b), -1) {
		known := p.Template.Get("Parameters", m[1]) != nil || p.Template.Get("Outputs", m[1]) != nil || p.Template.Get("Resources", m[1]) != nil
		require.True(t, known, "docs/deploy.md: %s: want a parameter, an output or a resource", m[1])
	}
	for _, e := range p.Template.Get("Outputs").Entries {
		_, err := p.Resolve(e.Value.Get("Value"), p.Deployed(nil))
		require.NoError(t, err, e.Key)
	}
}

// SAM CLI gives every function an environment that is of use: no text stands for a secret, and beside LocalEndpoint none
// for an attribute that SAM cannot know. What env.local.json overrides is declared, since SAM hands on nothing else.
func TestSamResolvesEnvironments(t *testing.T) {
	p := project(t, nil)
	declared := map[string]bool{}
	for _, f := range p.Resources(functionType) {
		for _, endpoint := range []string{"", "http://127.0.0.1:8000"} {
			all, err := p.Environment(f.ID, p.SAM(Values{"LocalEndpoint": endpoint}))
			require.NoError(t, err)
			require.Equal(t, endpoint, all["AWS_ENDPOINT_URL"])
			for name, value := range all {
				declared[name] = true
				require.NotContains(t, value, "{{resolve:", "%s: %s", f.ID, name)
				require.False(t, endpoint != "" && strings.HasPrefix(value, "$"), "%s: %s: %s", f.ID, name, value)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(root, "env.local.json"))
	require.NoError(t, err)
	var local struct{ Parameters map[string]string }
	require.NoError(t, json.Unmarshal(raw, &local))
	for name := range local.Parameters {
		require.True(t, declared[name], "env.local.json: %s: want a variable of the template", name)
	}
}

// Two stacks with the parameters' defaults, in one account, share no source of events, no alarm and no function.
func TestStacksAreApart(t *testing.T) {
	p := project(t, nil)
	patterns := map[string]string{}
	for _, stack := range []string{"one", "two"} {
		values := p.Deployed(Values{"AWS::StackName": stack})
		all, err := p.EventRules(values)
		require.NoError(t, err)
		for _, r := range all {
			require.NotEqual(t, "AlarmRule", r.ID, "no alarm starts a run of two stacks")
			require.NotEqual(t, patterns[r.ID], string(r.Pattern), r.ID)
			patterns[r.ID] = string(r.Pattern)
		}
		lines, err := p.Lines("ToolRole", values)
		require.NoError(t, err)
		invoke := Request{Action: "lambda:InvokeFunction", Resource: "arn:aws:lambda:eu-central-1:123456789012:function:one-tool-stock"}
		_, ok := Permit(lines, invoke)
		require.Equal(t, stack == "one", ok)
	}
}

// Every parameter says what it is, has a default, and refuses what it cannot use.
func TestParameters(t *testing.T) {
	p := project(t, nil)
	var grouped []string
	for _, g := range p.Template.Get("Metadata", "AWS::CloudFormation::Interface", "ParameterGroups").Each() {
		for _, n := range g.Get("Parameters").Each() {
			grouped = append(grouped, n.String())
		}
	}
	var names []string
	for _, e := range p.Template.Get("Parameters").Entries {
		names = append(names, e.Key)
		require.NotEmpty(t, e.Value.Get("Description").String(), e.Key)
		require.NotNil(t, e.Value.Get("Default"), e.Key)
		switch e.Value.Get("Type").String() {
		case "String":
			bounded := e.Value.Get("AllowedPattern") != nil && e.Value.Get("ConstraintDescription") != nil || e.Value.Get("AllowedValues") != nil
			require.True(t, bounded, "%s: want AllowedPattern with ConstraintDescription, or AllowedValues", e.Key)
		case "Number":
			require.True(t, e.Value.Get("MinValue") != nil || e.Value.Get("AllowedValues") != nil,
				"%s: want MinValue or AllowedValues", e.Key)
		}
	}
	require.ElementsMatch(t, names, grouped, "each parameter stands in one group")
}

// Parameters that need each other are refused alone.
func TestParametersTogether(t *testing.T) {
	p := project(t, nil)
	for _, c := range []struct {
		given Values
		want  string // how what the deployment is refused with begins; "" = it is not refused
	}{
		{nil, ""}, {Values{"Cognito": "true"}, ""},
		{Values{"JwtIssuer": "https://i.example"}, "JwtAudience: "}, {Values{"OidcClientId": "c"}, "JwtIssuer: "},
		{Values{"Cognito": "true", "JwtIssuer": "https://i.example", "JwtAudience": "a"}, "Cognito: "},
		{Values{"MailFrom": "a@b.example"}, "MailIdentity: "}, {Values{"SubnetIds": "subnet-1"}, "SecurityGroupIds: "},
		{Values{"PrivateHosts": "db.internal:443"}, "SubnetIds: "},
		{Values{"SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"}, ""},
	} {
		r := resolver{p: p, values: p.Deployed(c.given)}
		refused := ""
		for _, e := range p.Template.Get("Rules").Entries {
			for _, a := range e.Value.Get("Assertions").Each() {
				if r.holds(e.Value.Get("RuleCondition")) && !r.holds(a.Get("Assert")) {
					refused += a.Get("AssertDescription").String()
				}
			}
		}
		require.NoError(t, r.err)
		require.True(t, strings.HasPrefix(refused, c.want) && (c.want == "") == (refused == ""), "%v: %s", c.given, refused)
	}
}

// samconfig.toml overrides parameters that are there.
func TestSamconfig(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "samconfig.toml"))
	require.NoError(t, err)
	p := project(t, nil)
	overrides := 0
	for line := range strings.Lines(string(b)) {
		if _, list, ok := strings.Cut(line, "parameter_overrides = "); ok {
			for _, pair := range strings.Fields(strings.Trim(strings.TrimSpace(list), `"`)) {
				name, _, _ := strings.Cut(pair, "=")
				require.NotNil(t, p.Template.Get("Parameters", name), "samconfig.toml: %s: no such parameter", name)
				overrides++
			}
		}
	}
	require.Positive(t, overrides)
}
