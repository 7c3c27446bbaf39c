package presets

const head = `# Presets

` + "`preset: NAME`" + ` in agent.yaml sets every policy below; a key of its own in the file overrides the one it names. ` + "`countersign`" + ` is the
default. Each other one makes the engine behave as the system it is named after ([semantics.md](semantics.md)), as far as section 6.1 there
does not settle it otherwise. This page is written from the code's own values: ` + "`go test ./internal/presets -update`" + `.

| key | countersign | arvo | runner | tirea | what it is |
|---|---|---|---|---|---|
`

const tail = ``
