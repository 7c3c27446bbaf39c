package agent

// Program is the name of the first MCP server of d that is a program on the machine it runs on. False where there is none: then d runs in
// a deployed function.
func (d *Definition) Program() (server string, needed bool) {
	for _, s := range d.MCP {
		if len(s.Command) > 0 {
			return s.Name, true
		}
	}
	return "", false
}

// TextNeedsProgram says why an agent cannot run in a deployed function.
func TextNeedsProgram(name, server string) string {
	return "agent " + name + " needs a program on this machine (mcp server " + server + " has a command) and cannot run in a deployed function"
}
