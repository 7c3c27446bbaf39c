package lambdafn

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/logging"
)

// The environment that Lambda gives every function, and what of the SDK's own a deployment may add to it.
const (
	envRegion       = "AWS_REGION"
	envAccessKey    = "AWS_ACCESS_KEY_ID"
	envSecretKey    = "AWS_SECRET_ACCESS_KEY"
	envSessionToken = "AWS_SESSION_TOKEN" // empty for the keys of a user

	envEndpoint        = "AWS_ENDPOINT_URL" // AWS_ENDPOINT_URL_<SERVICE> comes before it
	envIgnoreEndpoints = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
	envFIPS            = "AWS_USE_FIPS_ENDPOINT"
	envDualStack       = "AWS_USE_DUALSTACK_ENDPOINT"
	envMaxAttempts     = "AWS_MAX_ATTEMPTS"
	envRetryMode       = "AWS_RETRY_MODE"
)

// awsConfig configures the SDK from a function's environment: the role's credentials, which are fixed for a process' life, the region,
// endpoints and retries. It stands in for the SDK's package config, whose other sources (profiles, single sign-on, roles to assume,
// instance metadata) a function has not got: they are a tenth of a bootstrap (ADR 0015). A variable that is missing or makes no sense is
// an error that names it.
func awsConfig(getenv func(string) string) (aws.Config, error) {
	for _, name := range []string{envRegion, envAccessKey, envSecretKey} {
		if getenv(name) == "" {
			return aws.Config{}, fmt.Errorf("%s: want a value, got none", name)
		}
	}
	endpoints, err := readEndpoints(getenv)
	if err != nil {
		return aws.Config{}, err
	}
	cfg := aws.Config{
		Region:      getenv(envRegion),
		Credentials: credentials.NewStaticCredentialsProvider(getenv(envAccessKey), getenv(envSecretKey), getenv(envSessionToken)),
		Logger:      logging.NewStandardLogger(os.Stderr), ConfigSources: []any{endpoints},
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenSupported,
	}
	if url := getenv(envEndpoint); url != "" && !endpoints.ignored {
		cfg.BaseEndpoint = &url
	}
	return cfg, readRetries(&cfg, getenv)
}

func readRetries(cfg *aws.Config, getenv func(string) string) error {
	if text := getenv(envMaxAttempts); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%s: want a number from 1, got %q", envMaxAttempts, text)
		}
		cfg.RetryMaxAttempts = n
	}
	if text := getenv(envRetryMode); text != "" {
		mode, err := aws.ParseRetryMode(text)
		if err != nil {
			return fmt.Errorf("%s: want standard or adaptive, got %q", envRetryMode, text)
		}
		cfg.RetryMode = mode
	}
	return nil
}

// endpoints is what the SDK's clients ask for where their service is. Its methods are the SDK's names for the questions.
type endpoints struct {
	getenv                   func(string) string
	ignored, fips, dualStack bool
}

func readEndpoints(getenv func(string) string) (endpoints, error) {
	e := endpoints{getenv: getenv}
	for name, to := range map[string]*bool{envIgnoreEndpoints: &e.ignored, envFIPS: &e.fips, envDualStack: &e.dualStack} {
		switch text := getenv(name); strings.ToLower(text) {
		case "", "false":
		case "true":
			*to = true
		default:
			return endpoints{}, fmt.Errorf("%s: want true or false, got %q", name, text)
		}
	}
	return e, nil
}

// GetServiceBaseEndpoint gives the endpoint of a service by the SDK's name for it, as "Bedrock Runtime".
func (e endpoints) GetServiceBaseEndpoint(_ context.Context, service string) (string, bool, error) {
	url := e.getenv(envEndpoint + "_" + strings.ReplaceAll(strings.ToUpper(service), " ", "_"))
	return url, url != "", nil
}

// GetIgnoreConfiguredEndpoints says whether the variables that name endpoints count for nothing.
func (e endpoints) GetIgnoreConfiguredEndpoints(context.Context) (ignore, found bool, err error) {
	return e.ignored, e.ignored, nil
}

// GetUseFIPSEndpoint says whether endpoints with validated cryptography are wanted.
func (e endpoints) GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error) {
	return aws.FIPSEndpointStateEnabled, e.fips, nil
}

// GetUseDualStackEndpoint says whether endpoints that answer on IPv6, too, are wanted.
func (e endpoints) GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error) {
	return aws.DualStackEndpointStateEnabled, e.dualStack, nil
}

// endpointOf is where a service is, by the SDK's name for it: where the environment says, else its own endpoint in the region.
func endpointOf(service string, own func(region string, fips, dualStack bool) string, cfg aws.Config, getenv func(string) string) (string, error) {
	e, err := readEndpoints(getenv)
	if err != nil {
		return "", err
	}
	url, found, err := e.GetServiceBaseEndpoint(context.Background(), service)
	switch {
	case err != nil:
		return "", err
	case found && !e.ignored:
		return url, nil
	case cfg.BaseEndpoint != nil:
		return *cfg.BaseEndpoint, nil
	default:
		return own(cfg.Region, e.fips, e.dualStack), nil
	}
}
