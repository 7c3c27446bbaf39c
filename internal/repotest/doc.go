// Package repotest holds the files of this repository to each other: imports, template, state machine, sample events
// and docs/costs.md. Tests of other packages take roles, rules and timeouts from its Project.
package repotest
