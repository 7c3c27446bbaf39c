package secrets

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tool"
)

// Deployed are the secrets of a deployed function, as its environment names them. Without a prefix there are none. A
// variable that makes no sense is an error that names it.
func Deployed(cfg aws.Config, getenv func(string) string, clk clock.Clock) (tool.Secrets, error) {
	prefix := getenv(EnvPrefix)
	if prefix == "" {
		return tool.NoSecrets{}, nil
	}
	at, err := managerEndpoint(cfg)
	if err != nil {
		return nil, err
	}
	return NewVault(cfg, at, prefix, clk), nil
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
	return Endpoint(cfg.Region, fips, dualStack), nil
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
