package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/lambdatool"
)

// functions are those of AWS Lambda, with the credentials and the region that the AWS SDK finds where it always does, once one is invoked:
// most agents have none. Safe for concurrent use.
type functions struct {
	p *program

	mu     sync.Mutex
	client *lambdatool.Client
}

// Invoke implements runtime.Functions.
func (f *functions) Invoke(ctx context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	c, err := f.configured()
	if err != nil {
		return runtime.Invoked{}, err
	}
	return c.Invoke(ctx, i)
}

func (f *functions) configured() (*lambdatool.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client != nil {
		return f.client, nil
	}
	cfg, err := f.p.aws.config(f.p.clock)
	switch {
	case err != nil:
		return nil, fmt.Errorf("invoke functions of AWS Lambda: %w", err)
	case cfg.Region == "":
		return nil, fmt.Errorf("%w: %w", runtime.ErrUndeliverable, errors.New("functions of AWS Lambda need a region: set AWS_REGION or AWS_PROFILE"))
	}
	f.client = lambdatool.New(cfg)
	return f.client, nil
}
