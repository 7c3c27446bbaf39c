// Package costs counts what a run asks of AWS and writes docs/costs.md of it: its test fails when the document is no
// longer true.
package costs
