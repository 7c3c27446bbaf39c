// Package lambda is the functions of a deployment on AWS. Each main is one line over the program's registry:
//
//	func main() { lambda.Step(agents.Registry()) }
//
// Build with go build -trimpath -ldflags "-s -w" -tags lambda.norpc. Every function reads its configuration from the
// environment that template.yaml sets, and ends with an error that names the variable if one that it needs is missing
// or wrong. Settings of telemetry and of messages to people that are wrong are logged and left out. None of the
// functions returns.
package lambda

import (
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/pkg/agent"
)

// Step is the function of the state machine that asks models.
func Step(r *agent.Registry) { lambdafn.Step(r) }

// Tool is the function of the state machine that runs tools.
func Tool(r *agent.Registry) { lambdafn.Tool(r) }

// Approve is the function of the state machine that keeps a task token and tells people of requests.
func Approve(r *agent.Registry) { lambdafn.Approve(r) }

// HTTP is the HTTP API of runs and approvals, behind API Gateway. Where the environment has a key ring, it is also the
// pages on which people decide, behind links that say who opens them, and what is clicked in Slack. By a function URL
// it streams the events of runs.
func HTTP(r *agent.Registry) { lambdafn.HTTP(r) }

// Sweep repairs runs: on a schedule all of them, and one at once when its execution ended badly.
func Sweep(r *agent.Registry) { lambdafn.Sweep(r) }
