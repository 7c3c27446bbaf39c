// Package plan is the orchestrator: it asks a model for steps, reads them, gives each step to the loop, and joins the
// answers. It also holds the pre-filter, which narrows the tools of a request to those that fit.
package plan
