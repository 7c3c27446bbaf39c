package agent

// The wordings of plans.
const (
	wordPlanSystem      = "planSystem"
	wordPlanAgain       = "planAgain"
	wordStepSystem      = "stepSystem"
	wordStep            = "step"
	wordStepAgain       = "stepAgain"
	wordSynthesisSystem = "synthesisSystem"
	wordSynthesis       = "synthesis"
	wordSynthesisStatic = "synthesisStatic"
)

// wordingsOfPlans are what models are told that plan, carry out steps and sum up, and what stands for their answer.
var wordingsOfPlans = []Wording{
	{Key: wordPlanSystem, About: "behind the system text, to the planner", Text: textPlanSystem, Fields: []string{"Tools", "MaxSteps"}},
	{Key: wordPlanAgain, About: "to a planner whose plan has one step where the request asks for several things", Text: textPlanAgain},
	{Key: wordStepSystem, About: "the system text of the router", Text: textStepSystem},
	{Key: wordStep, About: "to the router, about one step", Text: textStep, Fields: []string{"Step", "Description", "Hints", "Context"}},
	{Key: wordStepAgain, About: "behind that, to a router that has not called a tool", Text: textStepAgain},
	{Key: wordSynthesisSystem, About: "behind the system text, to the model that answers from a plan's results", Text: textSynthesisSystem},
	{Key: wordSynthesis, About: "to that model: the request and the results", Text: textSynthesis, Fields: []string{"Request", "Results"}},
	{Key: wordSynthesisStatic, About: "in place of its answer, where it fails", Text: textSynthesisStatic, Fields: []string{"Results"}},
}

const (
	textPlanSystem = `You do not act now: you plan. Somebody else will carry out your plan with these tools:
{{.Tools}}

Reply with calls of these forms and nothing else:
plan.add_step(step, "server", "description") for each step, in order; step counts from 1, server is what stands before the dot of the tool's name. One step is one tool call. Say in the description everything that its call needs, and name earlier steps as "step 1" where it needs their results. At most {{.MaxSteps}} steps.
plan.respond("message") instead, where no tool is needed: the message is your answer.
plan.done() at the end.`

	textPlanAgain = "Your plan has one step, but the request asks for several things. Plan again, with a step for each tool call."

	textStepSystem = "You carry out one step of a plan by calling exactly one of the tools. Take its arguments from the step and from the results " +
		"of earlier steps. Do not explain, do not answer: call the tool."

	textStep = `Step {{.Step}}: {{.Description}}{{if .Hints}}

Suggested arguments: {{.Hints}}{{end}}{{if .Context}}

Results of earlier steps:
{{.Context}}{{end}}`

	textStepAgain = "Your last reply had no tool call. Reply with one tool call and nothing else."

	textSynthesisSystem = "The tools have been used already. Answer the user from the results that you are given and from nothing else. Say what was not done."

	textSynthesis = `The user asked:
{{.Request}}

The results:
{{.Results}}

Answer the user now.`

	textSynthesisStatic = `This was done:
{{.Results}}`
)
