// Package reach puts together what carries out the calls of tools that are HTTP requests: for a deployed function, with the secrets of AWS
// Secrets Manager, and for a laptop, with those of its store directory. Only what runs tools links it.
package reach

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/egress"
	"github.com/countersign/countersign/pkg/agent/httptool"
	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/secrets"
	"github.com/countersign/countersign/pkg/agent/tool/port"
)

// Deployed is for a deployed function: a lambdafn.Remotes. Without a prefix there are no secrets. A variable that makes no sense is an
// error that names it.
func Deployed(cfg aws.Config, getenv func(string) string) (runtime.Remotes, error) {
	var from port.Secrets = port.NoSecrets{}
	if prefix := getenv(secrets.EnvPrefix); prefix != "" {
		at, err := managerEndpoint(cfg)
		if err != nil {
			return nil, err
		}
		from = secrets.NewVault(cfg, at, prefix, clock.System())
	}
	return remotes(from, getenv)
}

// Local is for a laptop whose store directory is dir.
func Local(dir string, getenv func(string) string) (runtime.Remotes, error) {
	return remotes(secrets.Local{File: filepath.Join(dir, secrets.FileName), Getenv: getenv}, getenv)
}

func remotes(from port.Secrets, getenv func(string) string) (runtime.Remotes, error) {
	private, err := egress.ParsePrivate(getenv(egress.EnvPrivate))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", egress.EnvPrivate, err)
	}
	return runtime.Remotes{agent.KindHTTP: httptool.New(httptool.Config{Secrets: from, Private: private})}, nil
}

// endpoints and the others are what package lambdafn's configuration says, under the SDK's names for the questions.
type (
	endpoints interface {
		GetServiceBaseEndpoint(ctx context.Context, service string) (string, bool, error)
	}
	ignored interface {
		GetIgnoreConfiguredEndpoints(ctx context.Context) (ignore, found bool, err error)
	}
	variants interface {
		GetUseFIPSEndpoint(ctx context.Context) (aws.FIPSEndpointState, bool, error)
		GetUseDualStackEndpoint(ctx context.Context) (aws.DualStackEndpointState, bool, error)
	}
)

// managerEndpoint is where Secrets Manager is: where the configuration says, else in the region.
func managerEndpoint(cfg aws.Config) (string, error) {
	var fips, dualStack bool
	for _, source := range cfg.ConfigSources {
		url, err := said(source)
		if url != "" || err != nil {
			return url, err
		}
		if v, ok := source.(variants); ok {
			state, _, err := v.GetUseFIPSEndpoint(context.Background())
			if err != nil {
				return "", err
			}
			dual, _, err := v.GetUseDualStackEndpoint(context.Background())
			if err != nil {
				return "", err
			}
			fips, dualStack = state == aws.FIPSEndpointStateEnabled, dual == aws.DualStackEndpointStateEnabled
		}
	}
	if cfg.BaseEndpoint != nil {
		return *cfg.BaseEndpoint, nil
	}
	return secrets.Endpoint(cfg.Region, fips, dualStack), nil
}

// said is the endpoint that a source names; "" = none that counts.
func said(source any) (string, error) {
	if i, ok := source.(ignored); ok {
		if ignore, _, err := i.GetIgnoreConfiguredEndpoints(context.Background()); ignore || err != nil {
			return "", err
		}
	}
	e, ok := source.(endpoints)
	if !ok {
		return "", nil
	}
	url, found, err := e.GetServiceBaseEndpoint(context.Background(), "Secrets Manager")
	if !found {
		return "", err
	}
	return url, err
}
