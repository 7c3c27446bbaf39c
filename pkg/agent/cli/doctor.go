package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

// doctorCommand says what keeps agents from working, on this machine or in a deployment, and what mends it. It changes
// nothing; it asks each model for a few tokens.
type doctorCommand struct {
	Stack  string `placeholder:"STACK" help:"Look at this deployment, with the region and credentials there are."`
	Tenant string `placeholder:"T" help:"Of a deployment: whose people and secrets (default: default)."`
}

type finding struct {
	Problem string `json:"problem"`
	Mend    string `json:"mend"` // a command, or what to do
}

type examined struct {
	Check    string    `json:"check"`
	Findings []finding `json:"findings"`         // empty = nothing is wrong
	Unseen   string    `json:"unseen,omitempty"` // why it could not be looked at
}

type doctorResult struct {
	OK     bool       `json:"ok"`
	Checks []examined `json:"checks"`
}

// check is one thing that doctor looks at. Its error says why it could not.
type check struct {
	name string
	look func(ctx context.Context) ([]finding, error)
}

func (c *doctorCommand) run(ctx context.Context, p *program) error {
	if c.Tenant != "" && c.Stack == "" {
		return usageErrorf("--tenant: want it with --stack: the store directory has one tenant")
	}
	known, problems := p.loadLocalAgents()
	checks := []check{{"agents", func(ctx context.Context) (found []finding, err error) {
		for _, err := range append(problems, known.Check()) {
			if err == nil {
				continue
			}
			found = append(found, finding{err.Error(), "mend the file, then: " + p.commandLine("validate", "AGENT")})
		}
		for _, name := range known.Agents() {
			d, _ := known.Agent(name)
			for _, w := range agent.Agents(known.Agent).Warnings(d) {
				found = append(found, finding{"agent " + name + ": " + w, "mend the name, or remove it"})
			}
			if c.Stack != "" { // the identity provider knows its groups
				continue
			}
			unknown, _ := p.unknownApprovers(ctx, d) // the check of the store reports a bad file
			for _, w := range unknown {
				found = append(found, finding{"agent " + name + ": " + w, "mend the name, or add it to the file"})
			}
		}
		return found, nil
	}}}
	if c.Stack == "" {
		checks = append(checks, p.localChecks(known)...)
	} else {
		d, err := p.findDeployment(ctx, c.Stack, cmp.Or(c.Tenant, local.Tenant))
		if err != nil {
			return err
		}
		checks = append(checks, d.checks(known)...)
	}
	doc := doctorResult{OK: true}
	for _, look := range checks {
		found, err := look.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		one := examined{Check: look.name, Findings: append([]finding{}, found...)}
		switch {
		case err != nil:
			one.Unseen = err.Error()
			p.printText("unseen  %-10s %s", one.Check, line(one.Unseen))
		case len(found) == 0:
			p.printText("ok      %s", one.Check)
		}
		for _, f := range found {
			p.printText("wrong   %-10s %s", one.Check, line(f.Problem))
			p.printText("        %-10s %s", "mend:", line(f.Mend))
		}
		doc.OK = doc.OK && len(found) == 0
		doc.Checks = append(doc.Checks, one)
	}
	if err := p.printJSON(doc); err != nil || doc.OK {
		return err
	}
	return exitCode(exitFailed)
}

func (p *program) localChecks(agents web.Agents) []check {
	return append([]check{
		{"store", func(ctx context.Context) (found []finding, err error) {
			if err := p.withReadSession(ctx, func(*session) error { return nil }); err != nil {
				return []finding{{err.Error(), "mend the file, restore a backup, or name another store with --home"}}, nil
			}
			for _, file := range []string{"keyring", "token", "secrets.yaml"} {
				name := filepath.Join(p.home, file)
				if _, err := readPrivate(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
					found = append(found, finding{err.Error(), "chmod 600 " + quoteShell(name)})
				}
			}
			return found, nil
		}},
		{"secrets", func(ctx context.Context) ([]finding, error) {
			return missingSecrets(ctx, p.localSecrets(), local.Tenant, agents, func(name string) string {
				return fmt.Sprintf("put %s: \"…\" into %s, or set %s%s", name, filepath.Join(p.home, "secrets.yaml"),
					tool.EnvSecret, name)
			})
		}},
		{"slack", func(ctx context.Context) ([]finding, error) {
			token, err := p.localSecrets().Secret(ctx, local.Tenant, local.SlackToken)
			if errors.Is(err, tool.ErrNoSecret) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			return p.slackFindings(ctx, token)
		}},
	}, p.modelChecks(agents, nil)...)
}

// modelChecks ask every model of the agents for a few tokens. Of providers that are left out nothing is known.
func (p *program) modelChecks(agents web.Agents, leftOut map[string]string) (checks []check) {
	seen, budgets := map[string]bool{}, map[string]bool{} // by model; the latter: an agent that names it has a budget
	for _, name := range agents.Agents() {
		d, _ := agents.Agent(name)
		models := append([]agent.ModelSpec{d.Model}, d.Model.Fallbacks...)
		for _, m := range []*agent.ModelSpec{d.Orchestrator.Planner, d.Orchestrator.Router} {
			if m != nil && d.Orchestrator.Enabled {
				models = append(models, *m)
			}
		}
		for _, m := range models {
			id := strings.TrimRight(m.Provider+":"+m.ID+"@"+m.BaseURL, "@")
			budgets[id] = budgets[id] || d.Limits.Tokens > 0 || d.Limits.USD > 0 || d.Limits.Period != nil
			if seen[id] || m.Provider == "script" || m.Provider == "demo" {
				continue
			}
			seen[id] = true
			checks = append(checks, check{"model " + id, func(ctx context.Context) ([]finding, error) {
				if why := leftOut[m.Provider]; why != "" {
					return nil, errors.New(why)
				}
				return p.modelFindings(ctx, name, m, budgets[id]), nil
			}})
		}
	}
	return checks
}

// modelAccess is what has to be done once before a model of Bedrock answers.
const modelAccess = "ask for access to the model in Bedrock's console in this region; Anthropic wants a form once an " +
	"account; the first request of an account wants aws-marketplace:Subscribe, and may fail for some minutes"

func (p *program) modelFindings(ctx context.Context, name string, m agent.ModelSpec, budget bool) []finding {
	m.MaxTokens, m.Fallbacks = 16, nil
	model, err := p.newModel(m, nil)
	var reply agent.Reply
	if err == nil {
		ctx, cancel := p.clock.WithTimeout(ctx, time.Minute)
		defer cancel()
		reply, err = model.Generate(ctx, agent.Request{
			Tenant: local.Tenant, Run: "doctor", Agent: name, Inference: 1, Model: m,
			Messages: []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "Say yes."}}},
		})
	}
	switch {
	case err == nil && budget && reply.Usage == (run.Usage{}):
		return []finding{{
			"the model does not say how many tokens it used, so budgets hold nothing back",
			"use a server that reports usage in streams, or set limits.interactions or stop.timeout",
		}}
	case err == nil:
		return nil
	}
	mend := "see the message"
	if failed, ok := errors.AsType[*agent.ModelError](err); ok {
		switch {
		case m.Provider == "bedrock" && failed.Class == agent.ModelAuth:
			mend = modelAccess
		case m.Provider == "bedrock" && (failed.Lasting || failed.Class == agent.ModelInvalid):
			mend = "name a model, or an inference profile such as eu." + m.ID + ", that the region offers"
		case failed.Class == agent.ModelThrottled:
			mend = "ask for more of the model's quota (Service Quotas), or wait"
		}
	}
	return []finding{{fmt.Sprintf("agent %s: %v", name, err), mend}}
}

// missingSecrets are the secrets that tools and MCP servers of the agents name and nobody has stored.
func missingSecrets(
	ctx context.Context, from tool.Secrets, tenant string, agents web.Agents, mend func(name string) string,
) (found []finding, err error) {
	uses := map[string]string{} // the agent, by secret
	for _, name := range agents.Agents() {
		d, _ := agents.Agent(name)
		text, err := json.Marshal([]any{d.Tools, d.MCP})
		if err != nil {
			return nil, err
		}
		parts, err := agent.SecretParts(string(text))
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", name, err)
		}
		for _, part := range parts {
			if part.Secret != "" {
				uses[part.Secret] = name
			}
		}
	}
	for _, secret := range slices.Sorted(maps.Keys(uses)) {
		switch _, err := from.Secret(ctx, tenant, secret); {
		case errors.Is(err, tool.ErrNoSecret):
			problem := fmt.Sprintf("secret %s of agent %s is not there", secret, uses[secret])
			found = append(found, finding{problem, mend(secret)})
		case err != nil:
			return found, err
		}
	}
	return found, nil
}

// slackFindings ask Slack who the token is of and what it may do. Whether the app's request URL is the deployment's,
// Slack does not say.
func (p *program) slackFindings(ctx context.Context, token string) ([]finding, error) {
	ctx, cancel := p.clock.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	base := cmp.Or(p.getenv(lambdafn.EnvSlackURL), "https://slack.com")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(base, "/")+"/api/auth.test", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask Slack about its token: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask Slack about its token: %w", err)
	}
	const reinstall = "compare the app with the manifest in docs/how-to.md, install it again, and store its new token"
	if !answer.OK {
		return []finding{{"Slack refuses the token: " + answer.Error, reinstall}}, nil
	}
	has := strings.Split(strings.ReplaceAll(resp.Header.Get("X-OAuth-Scopes"), " ", ""), ",")
	if !slices.Contains(has, "chat:write") {
		return []finding{{"the app has not the scope chat:write", reinstall}}, nil
	}
	return nil, nil
}
