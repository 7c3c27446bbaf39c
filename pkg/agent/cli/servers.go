package cli

import "github.com/countersign/countersign/internal/run"

// printServer says what a run has of a server, and what it has not.
func (p *program) printServer(v run.ServerState, fact func(name, format string, args ...any)) {
	switch {
	case v.Problem != "" && len(v.Tools) == 0:
		fact("server", "%s could not be listed: %s", line(v.Name), line(v.Problem))
	case v.Problem != "":
		fact("server", "%s with %d tools: %s", line(v.Name), len(v.Tools), line(v.Problem))
	default:
		fact("server", "%s with %d tools", line(v.Name), len(v.Tools))
	}
	for _, t := range v.Disabled {
		fact("disabled", "%s of %s: %s", line(t.Tool), line(v.Name), p.disabledReason(t))
	}
}

// printServers tells what a run has not got of its servers: who wonders why it does not call a tool reads it here.
func (pr *progress) printServers(fact run.Event) {
	switch f := fact.(type) {
	case run.ToolsListed:
		for _, v := range f.Servers {
			pr.p.printServer(v, func(name, format string, args ...any) {
				if name != "server" || v.Problem != "" {
					pr.print(name, format, args...)
				}
			})
		}
	case run.ToolsDisabled:
		pr.print("disabled", "%s of %s: %s", f.Tool, f.Server, pr.p.disabledReason(run.DisabledTool{Why: f.Why}))
	}
}

// disabledReason says why a tool is.
func (p *program) disabledReason(t run.DisabledTool) string {
	switch t.Why {
	case run.DisabledChanged:
		return "its server has changed it since mcp.lock was written (run: " + p.commandName() + " mcp lock)"
	case run.DisabledNew:
		return "it is not in mcp.lock (run: " + p.commandName() + " mcp lock)"
	case run.DisabledCollision:
		return "its name is taken: " + line(t.Detail)
	default:
		return "it cannot be used: " + line(t.Detail)
	}
}
