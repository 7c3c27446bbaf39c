// Package sampletest feeds every sample event, functions/*/events/*.json, to the function it is a sample for, and holds
// it to what the README says of it. Samples are what people copy: one that has drifted from the code is worse than
// none.
package sampletest
