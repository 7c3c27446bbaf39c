// Package samtest checks what is deployed before it is: template.yaml, the state machine and the Makefile against each other and
// against the code. It closes what the validators from npm (tools/template) leave open, which is nearly everything inside
// AWS::Serverless resources, and holds the promises of docs/reliability.md that are kept in the template alone: least privilege, timeouts
// in order, dead letters, retention, alarms.
//
// A rule is a function of the project's files that gives the problems it sees. The tests run all of them on the files as they are, and on
// broken ones: a rule that no broken file wakes is not a rule.
package samtest
