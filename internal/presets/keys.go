package presets

// keys are the lines of the page, in the order of agent.yaml.
var keys = []key{
	{yaml: "model.retry.attempts", about: "requests for one inference, the first included"},
	{yaml: "model.retry.backoff", about: "before the second; doubles", time: true},
	{yaml: "model.retry.maxBackoff", about: "the longest wait", time: true},
	{yaml: "permission.mode", about: "what happens to a call that needs a person: it is parked and replayed, refused while its tool's permission is asked for, or only advised against"},
	{yaml: "permission.default", about: "the verdict where no rule matches"},
	{yaml: "permission.scope", about: "what a decision decides: one call, or its tool"},
	{yaml: "permission.grants", about: "how long a tool's permission holds"},
	{yaml: "permission.approvers", about: "who may decide where the rule names nobody"},
	{yaml: "permission.rules[].expires", stored: "permission.expires", about: "an approval's life where the rule says none", time: true},
	{yaml: "permission.early", stored: "early", about: "a decision before the call is suspended"},
	{yaml: "limits.interactions", about: "inferences, the forced summary not counted"},
	{yaml: "limits.grace", about: "inferences beyond them that know it is the end", unset: "0"},
	{yaml: "limits.onLimit", about: "what comes then"},
	{yaml: "batch", about: "which of a reply's calls are carried out"},
	{yaml: "executor", about: "how a round's tools run, and what they see of each other"},
	{yaml: "wait", about: "when a round with suspended calls parks the run"},
	{yaml: "resume", about: "when a decision is carried out"},
	{yaml: "textBesideCalls", about: "text in a reply that has calls"},
	{yaml: "dropped", about: "whether the model hears of calls that were left out"},
	{yaml: "systemPrompt", about: "when the system text is built"},
	{yaml: "corrections", about: "where the model reads that its output was refused"},
	{yaml: "context.mask", about: "media that were seen stand as text", unset: "false"},
	{yaml: "output.format", about: "what the last word has to be"},
}
