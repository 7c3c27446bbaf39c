package presets

const head = `# Presets

` + "`preset: NAME`" + ` in agent.yaml sets every policy below; a key of its own in the file overrides the one it names. ` + "`countersign`" + ` is the
default. Each other one makes the engine behave as the system it is named after ([semantics.md](semantics.md)), as far as section 6.1 there
does not settle it otherwise. This page is written from the code's own values: ` + "`go test ./internal/presets -update`" + `.

| key | countersign | arvo | runner | tirea | cowork | forge | what it is |
|---|---|---|---|---|---|---|---|
`

const wordingsHead = `
## Wordings

What policies say to a model. ` + "`wording: {KEY: TEXT}`" + ` in agent.yaml replaces one; {{.Field}} stands for what the default names so.

| key | said | default |
|---|---|---|
`

const sectionsHead = `
## Sections of the prompt

What stands around an agent's own words. The built-in texts of those marked *loop* stand under ` + "`text: require_tool`" + ` and where a model of the
chain has ` + "`dialect: xml`" + `; those marked *xml* only in requests to a model that has it; those marked *tools* only in requests that offer tools.
` + "`prompt: {sections: {NAME: TEXT}}`" + ` replaces one, for any agent, and an empty text leaves it out. Each stands between tags of its name; the agent's own
words have none in the order seed. A text may show what a system text may, ` + "`.ToolRequired`, `.OneTool` and `.LoopBreaking`" + ` (names of the tools that end
the loop), a section of the system ` + "`.Instructions`" + `, a section of the turn ` + "`.ToolPrompt`, `.Planning` and `.RAG`" + `; its ` + "`.Tools`" + ` are those of the request.

Order seed: in the system message what has the place *system*, as listed; in the newest user turn, before the user's words and behind results of
tools, what has the place *turn*. Order code: everything in the system message, as numbered.

| section | place | code | when | what it is | built in |
|---|---|---|---|---|---|
`
