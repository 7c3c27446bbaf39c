package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
)

// agentRuns is how many of an agent's newest runs its page shows and counts.
const agentRuns = 25

type agentsPage struct {
	frame
	Agents  []agentRow
	Partial bool // an agent may have more runs than its figures are of
}

// agentRow is an agent in the list, with its newest runs in figures.
type agentRow struct {
	Name    string
	Model   string
	Tools   int
	Figures agentFigures
	Broken  bool // its file cannot be loaded
}

// agentFigures are of an agent's newest runs.
type agentFigures struct {
	Runs, Open, Failed int
	Rate               string
	Cost               run.USD
	Partial            bool // it may have more runs: the API looks through some hundreds of all agents' newest
}

type agentPage struct {
	frame
	Name    string
	Heading string
	System  string
	Facts   []people.Row
	Tools   []toolRow
	Servers []serverRow
	Figures agentFigures
	Runs    []runRow
	Grants  []grantRow
	Notice  *formResult
	Broken  []AgentProblem // what is wrong with its file; nil = it can be loaded
}

// toolRow is a tool with what holds of its calls, in words.
type toolRow struct {
	Name, Description string
	Effect            string
	Risk              people.Risk
	Rules             []string
}

// serverRow is an MCP server with what mcp.lock pins of it.
type serverRow struct {
	Name, At string
	Locked   string
	Tools    []string
}

type grantRow struct {
	Grant
	Covers string // arguments
	People string // who granted it
}

var effectWords = map[run.Effect]string{
	run.EffectRead: "reads", run.EffectIdempotent: "changes something, can be repeated",
	run.EffectNonIdempotent: "changes something, cannot be repeated",
}

func (c *console) newAgentsPage(r *http.Request) (page agentsPage, err error) {
	if _, err := readQuery(r); err != nil {
		return page, err
	}
	page.frame = c.newFrame("Agents", navAgents)
	broken := c.Broken()
	for _, name := range c.agentNames() {
		row := agentRow{Name: name, Broken: broken[name] != nil}
		if d, ok := c.Definition(name); ok {
			row.Model, row.Tools = modelName(d.Model), len(d.Tools)
		}
		if _, row.Figures, err = c.loadAgentRuns(r.Context(), name); err != nil {
			return page, err
		}
		page.Agents, page.Partial = append(page.Agents, row), page.Partial || row.Figures.Partial
	}
	return page, nil
}

// agentNames returns the names of all agents, also of those that cannot be loaded.
func (c *console) agentNames() []string {
	names := slices.AppendSeq(slices.Clone(c.Agents()), maps.Keys(c.Broken()))
	slices.Sort(names)
	return names
}

func modelName(m agent.ModelSpec) string { return strings.TrimSpace(m.Provider + " " + m.ID) }

// loadAgentRuns returns an agent's newest runs, and figures of them.
func (c *console) loadAgentRuns(ctx context.Context, name string) (rows []runRow, f agentFigures, err error) {
	heads, err := c.Read.Runs(ctx, RunQuery{Agent: name, Limit: agentRuns})
	if err != nil {
		return nil, f, err
	}
	f.Partial = heads.Cursor != ""
	for _, h := range heads.Items {
		row, err := c.newRunRow(ctx, h)
		if err != nil {
			return nil, f, err
		}
		rows = append(rows, row)
		f.Runs++
		f.Cost += row.Cost
		switch {
		case h.Status != run.RunDone:
			f.Open++
		case h.Reason == run.ReasonError:
			f.Failed++
		}
	}
	if ended := f.Runs - f.Open; ended > 0 {
		f.Rate = fmt.Sprintf("%d %%", 100*f.Failed/ended)
	}
	return rows, f, nil
}

func (c *console) newAgentPage(r *http.Request, name string) (page agentPage, err error) {
	if _, err := readQuery(r); err != nil {
		return page, err
	}
	page = agentPage{frame: c.newFrame(name, navAgents), Name: name, Heading: name, Broken: c.Broken()[name]}
	switch d, known := c.Definition(name); {
	case known:
		c.addDefinition(&page, d)
	case page.Broken == nil:
		return page, errNoPage
	}
	if page.Runs, page.Figures, err = c.loadAgentRuns(r.Context(), name); err != nil {
		return page, err
	}
	for cursor := ""; ; {
		grants, err := c.Read.Grants(r.Context(), name, cursor, maxPageMessages)
		if err != nil {
			return page, err
		}
		for _, g := range grants.Items {
			covers := "whatever it is called with"
			switch {
			case g.Pattern != "":
				covers = "where " + g.Pattern
			case g.Args != "":
				covers = "with " + g.Args
			}
			page.Grants = append(page.Grants, grantRow{g, covers, strings.Join(append([]string{g.By}, g.With...), ", ")})
		}
		if cursor = grants.Cursor; cursor == "" {
			return page, nil
		}
	}
}

func (c *console) addDefinition(page *agentPage, d *agent.Definition) {
	page.Heading = strings.TrimSpace(d.Name + " " + d.Version)
	page.System = d.System
	add := func(label, value string) {
		if value != "" {
			page.Facts = append(page.Facts, people.Row{Label: people.Text{{Text: label}}, Value: people.ForeignText(value)})
		}
	}
	add("Preset", string(d.Preset))
	add("Model", modelName(d.Model))
	for _, m := range d.Model.Fallbacks {
		add("Else", modelName(m))
	}
	add("Interactions", fmt.Sprintf("at most %d", d.Limits.Interactions))
	if d.Limits.Tokens > 0 {
		add("Tokens", "at most "+formatNumber(d.Limits.Tokens))
	}
	if d.Limits.USD > 0 {
		add("Money", "at most "+formatUSD(d.Limits.USD))
	}
	if d.Limits.Parallel > 0 {
		add("Calls at a time", fmt.Sprint(d.Limits.Parallel))
	}
	add("Requests to people at a time", fmt.Sprint(d.MaxOpen()))
	add("Approvers", strings.Join(d.Permission.Approvers, ", "))
	add("An approval waits", people.FormatDuration(d.Permission.Expires))
	for _, t := range d.Tools {
		page.Tools = append(page.Tools, toolRow{Name: t.Name, Description: t.Description,
			Effect: effectWords[t.Effect], Risk: people.RiskOf(t.Effect, t.Undo != nil), Rules: describeRules(d.Permission, t)})
	}
	for _, m := range d.MCP {
		row := serverRow{Name: m.Name, At: strings.Join(append(m.Command, m.URL), " "),
			Locked: "It is not in mcp.lock: its tools are trusted on this machine, and disabled in a deployment."}
		if m.Locked != nil {
			row.Locked = formatCount(len(m.Locked), "tool") + " pinned by mcp.lock"
			for tool := range m.Locked {
				row.Tools = append(row.Tools, people.ForeignText(tool).String())
			}
			slices.Sort(row.Tools)
		}
		page.Servers = append(page.Servers, row)
	}
}

// describeRules says what the policy does with the calls of a tool, rule by rule until one holds for all of them.
func describeRules(p agent.Permission, t agent.ToolSpec) (all []string) {
	verdict := func(r agent.Rule) string {
		switch r.Verdict {
		case agent.VerdictAllow:
			return "allowed"
		case agent.VerdictAsk:
		default:
			return "denied"
		}
		approvers := r.Approvers
		if len(approvers) == 0 {
			approvers = p.Approvers
		}
		words := "asks " + strings.Join(approvers, ", ")
		if r.Quorum > 1 {
			words = fmt.Sprintf("asks %d of %s", r.Quorum, strings.Join(approvers, ", "))
		}
		if r.FourEyes {
			words += ", not those it is done for"
		}
		if r.Expires > 0 {
			words += ", within " + people.FormatDuration(r.Expires)
		}
		return words
	}
	for _, r := range p.Rules {
		if !agent.MatchTool(r.Tool, t.Name) {
			continue
		}
		words := verdict(r)
		if when := agent.ConditionWords(r.When); when != "" {
			words += " if " + when
		}
		if r.Note != "" {
			words += ": " + r.Note
		}
		if all = append(all, people.ForeignText(words).String()); len(r.When) == 0 {
			return all
		}
	}
	words := verdict(agent.Rule{Verdict: p.DefaultVerdict(t.Effect)})
	if len(all) > 0 {
		words = "else " + words
	}
	return append(all, words)
}
