// Package badinput makes invalid inputs from a valid one, for the tests of every edge of the program. It varies each
// key of a JSON text in every invalid way, and the text as a whole. A table of Fields says what each key may hold: a
// new key needs a line in the table, and a new variation applies to every key of every edge.
//
// An Edge sends an input and observes what it did. Edge.RequireRefused checks every kind of input alike: the edge
// returns the right error, the error names the key, nothing is written or sent, and only the sender sees anything of
// the input.
package badinput

// Canary is part of every made-up value. Where it appears in a log, a metric, a header or an error, input has leaked.
const Canary = "canary-7d0f3a91"
