// Command approve is functions/approve of the state machine.
package main

import "github.com/countersign/countersign/pkg/agent/lambdafn"

func main() { lambdafn.Approve() }
