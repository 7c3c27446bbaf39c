package cli

// grammar is the command line, filled by kong.
type grammar struct {
	Home string `placeholder:"DIR" help:"Directory of the embedded store (or COUNTERSIGN_HOME; default ./.countersign)."`
	JSON bool   `name:"json" help:"Print one JSON document on standard output and nothing else there."`
	As   string `placeholder:"WHO" help:"Who acts, as user:ana,group:finance (default: HOME/principals.yaml)."`

	Version versionFlag `help:"Print the version of this program and end."`

	Run       runCommand       `cmd:"" help:"Start a run and follow it."`
	Runs      runsCommand      `cmd:"" help:"List runs, or what was repaired of them."`
	Show      showCommand      `cmd:"" help:"Show a run."`
	Events    eventsCommand    `cmd:"" help:"Show what happened in a run."`
	Approvals approvalsCommand `cmd:"" help:"List what waits for a person, with all a decision needs."`
	Approve   approveCommand   `cmd:"" help:"Approve a call, perhaps with other arguments, and carry its run on."`
	Deny      denyCommand      `cmd:"" help:"Deny a call and carry its run on."`
	Ask       askCommand       `cmd:"" help:"Ask about a call that waits for a person, or answer. It decides nothing."`
	Grants    grantsCommand    `cmd:"" help:"List or revoke standing grants: what agents may call without asking."`
	MCP       mcpCommand       `cmd:"" name:"mcp" help:"Pin the tools of MCP servers."`
	Export    exportCommand    `cmd:"" help:"Write journals, all that has happened to runs, or a run as a test."`
	Audit     auditCommand     `cmd:"" help:"Verify journals: all that has happened to runs."`
	People    peopleCommand    `cmd:"" help:"Say who decides in a deployment."`
	Answer    answerCommand    `cmd:"" help:"Answer for a service, or settle a call whose outcome is unknown."`
	Send      sendCommand      `cmd:"" help:"Say something to a run and carry it on."`
	Cancel    cancelCommand    `cmd:"" help:"End a run."`
	Delete    deleteCommand    `cmd:"" help:"Delete a run that has ended, with all that belongs to it."`
	Resume    resumeCommand    `cmd:"" help:"Carry on everything that is open."`
	Undo      undoCommand      `cmd:"" help:"Take back a call of a run that has ended, once it is approved."`
	Fork      forkCommand      `cmd:"" help:"Branch off a run at one of its entries and follow the new run."`
	Rehearse  rehearseCommand  `cmd:"" help:"Say what deploying this build would do to open runs. Nothing is written."`
	Doctor    doctorCommand    `cmd:"" help:"Say what is wrong, here or in a deployment, and what mends it."`
	Dev       devCommand       `cmd:"" help:"Serve the HTTP API until Ctrl-C, and carry on everything that is open."`
	Test      testCommand      `cmd:"" help:"Run scenarios."`
	Validate  validateCommand  `cmd:"" help:"Check agent definitions without running them."`
	Init      initCommand      `cmd:"" help:"Write a new project: an agent, its tool, its scenarios and the deployment."`

	// Earlier spellings of grants revoke and audit replay.
	Revoke revokeCommand `cmd:"" hidden:""`
	Replay replayCommand `cmd:"" hidden:""`
}
