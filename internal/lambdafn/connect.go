package lambdafn

import (
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/awssdk"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/s3"
)

// The environment of a deployed function, beside that of the SDK.
const (
	envTable   = "COUNTERSIGN_TABLE"
	envBucket  = "COUNTERSIGN_BUCKET"
	envMachine = "COUNTERSIGN_STATE_MACHINE"
	envBus     = "COUNTERSIGN_BUS" // name of the event bus for what services are asked and for runs' ends; empty = none
)

// warmRuns is how many runs' folded states one function environment keeps.
const warmRuns = 64

// Stored is a deployment's table and blobs as the environment names them, COUNTERSIGN_TABLE and COUNTERSIGN_BUCKET, for
// whoever looks at them from outside. A variable that is missing is an error that names it.
func Stored(cfg aws.Config, getenv func(string) string) (store.Table, store.Blobs, error) {
	if err := checkEnv(cfg, getenv, envTable, envBucket); err != nil {
		return nil, nil, err
	}
	clk := clock.System()
	draw := ids.System(clk)
	table := store.Resend(dynamo.New(cfg, getenv(envTable), draw.Key), clk, draw.Jitter)
	return table, s3.New(cfg, getenv(envBucket)), nil
}

// checkEnv returns an error that names the first variable without a value. The region may come from a profile instead
// of AWS_REGION.
func checkEnv(cfg aws.Config, getenv func(string) string, names ...string) error {
	for _, name := range names {
		if getenv(name) == "" {
			return fmt.Errorf("%s: want a value, got none", name)
		}
	}
	if cfg.Region == "" {
		return errors.New("AWS_REGION: want a value, got none")
	}
	return nil
}

// connect wires the ports of a deployment from its environment, all but models and tools. A variable that is missing is
// an error that names it.
func connect(cfg aws.Config, getenv func(string) string) (runtime.Ports, error) {
	if err := checkEnv(cfg, getenv, envTable, envBucket, envMachine); err != nil {
		return runtime.Ports{}, err
	}
	w, err := awssdk.NewWaiter(cfg, getenv(envMachine))
	if err != nil {
		return runtime.Ports{}, fmt.Errorf("%s: %w", envMachine, err)
	}
	w.Trace = observe.XRayHeader
	clk := clock.System()
	draw := ids.System(clk)
	blobs := s3.New(cfg, getenv(envBucket))
	table := store.Resend(dynamo.New(cfg, getenv(envTable), draw.Key), clk, draw.Jitter)
	p := runtime.Ports{
		Table: table, Journal: store.NewJournal(table, warmRuns), Blobs: blobs, Uploads: blobs,
		Waiter: w, Clock: clk, IDs: draw,
	}
	if name := getenv(envBus); name != "" {
		p.Emit = awssdk.NewBus(cfg, name)
	}
	return p, nil
}
