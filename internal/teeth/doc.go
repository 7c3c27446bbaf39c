// Package teeth shows that the tests of faults would notice. It is a list of mutations: each takes one rule of docs/protocol.md, or one
// defence, away from the product, and names the case that then fails and how.
//
// The product has no hook for that. A mutation is an exact edit of a source file: its old text stands there once, or nothing is built.
// All of them are laid over one build (go build -overlay), in which each works where the environment variable COUNTERSIGN_TOOTH has its
// name and nowhere else. So with the variable empty that build is the product, and every case has to pass.
package teeth
