package lambdafn

import (
	"fmt"

	"github.com/countersign/countersign/internal/aws/eventbridge"
	"github.com/countersign/countersign/internal/aws/sfn"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/observe/tracing"
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

// Stored is a deployment's table and blobs as the environment names them, COUNTERSIGN_TABLE and COUNTERSIGN_BUCKET beside that of the SDK: for whoever looks at
// them from outside. A variable that is missing is an error that names it.
func Stored(getenv func(string) string) (store.Table, store.Blobs, error) {
	for _, name := range []string{envTable, envBucket} {
		if getenv(name) == "" {
			return nil, nil, fmt.Errorf("%s: want a value, got none", name)
		}
	}
	cfg, err := awsConfig(getenv)
	if err != nil {
		return nil, nil, err
	}
	tables, err := endpointOf("DynamoDB", dynamo.Endpoint, cfg, getenv)
	if err != nil {
		return nil, nil, err
	}
	clk := clock.System()
	draw := ids.System(clk)
	table := store.Resend(dynamo.New(dynamo.NewClient(cfg, tables), getenv(envTable), dynamo.Options{Token: draw.Key}), clk, draw.Jitter)
	return table, s3.New(s3.NewClient(cfg, ""), getenv(envBucket)), nil
}

// connect wires the ports of a deployment from its environment, all but models and tools. A variable that is missing is an error that names
// it.
func connect(getenv func(string) string) (runtime.Ports, error) {
	for _, name := range []string{envTable, envBucket, envMachine} {
		if getenv(name) == "" {
			return runtime.Ports{}, fmt.Errorf("%s: want a value, got none", name)
		}
	}
	cfg, err := awsConfig(getenv)
	if err != nil {
		return runtime.Ports{}, err
	}
	states, err := endpointOf("SFN", sfn.Endpoint, cfg, getenv)
	if err != nil {
		return runtime.Ports{}, err
	}
	w, err := sfn.New(cfg, states, getenv(envMachine))
	if err != nil {
		return runtime.Ports{}, fmt.Errorf("%s: %w", envMachine, err)
	}
	w.Trace = tracing.XRay
	tables, err := endpointOf("DynamoDB", dynamo.Endpoint, cfg, getenv)
	if err != nil {
		return runtime.Ports{}, err
	}
	clk := clock.System()
	draw := ids.System(clk)
	objects, bucket := s3.NewClient(cfg, ""), getenv(envBucket)
	table := store.Resend(dynamo.New(dynamo.NewClient(cfg, tables), getenv(envTable), dynamo.Options{Token: draw.Key}), clk, draw.Jitter)
	p := runtime.Ports{
		Table: table, Journal: store.NewJournal(table, warmRuns), Blobs: s3.New(objects, bucket), Uploads: s3.NewUploads(objects, bucket),
		Waiter: w, Clock: clk, IDs: draw,
	}
	if name := getenv(envBus); name != "" {
		at, err := busEndpoint(cfg, getenv)
		if err != nil {
			return runtime.Ports{}, err
		}
		p.Emit = eventbridge.New(cfg, at, name)
	}
	return p, nil
}
