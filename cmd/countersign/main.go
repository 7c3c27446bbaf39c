// Command countersign runs the agents of this repository, and any other that is named, on a laptop.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/cli"
)

func main() { cli.Main(agents.Registry()) }
