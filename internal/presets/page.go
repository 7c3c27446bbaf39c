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
