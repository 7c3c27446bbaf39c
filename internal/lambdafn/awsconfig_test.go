package lambdafn

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/stretchr/testify/require"

	waiter "github.com/countersign/countersign/internal/aws/sfn"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	blobs "github.com/countersign/countersign/internal/store/s3"
)

// lambdaEnv is what Lambda gives every function.
func lambdaEnv(more map[string]string) func(string) string {
	env := map[string]string{envRegion: "eu-central-1", envAccessKey: "AKID", envSecretKey: "SECRET", envSessionToken: "SESSION"}
	for name, value := range more {
		env[name] = value
	}
	return func(name string) string { return env[name] }
}

// recorder keeps the last request and answers nothing that can be used.
type recorder struct {
	last *http.Request
	stop func() // ends the context, so that nobody asks again
}

func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	r.last = req
	r.stop()
	return nil, context.Canceled
}

// asked makes each client ask once with a configuration, and gives where.
func asked(t *testing.T, cfg aws.Config) map[string]string {
	t.Helper()
	var ctx context.Context
	r := &recorder{}
	cfg.HTTPClient, cfg.Retryer = r, func() aws.Retryer { return aws.NopRetryer{} }
	urls := map[string]string{}
	for name, ask := range map[string]func() error{
		"dynamodb": func() error {
			_, err := dynamodb.NewFromConfig(cfg).ListTables(ctx, &dynamodb.ListTablesInput{})
			return err
		},
		"sfn": func() error {
			_, err := sfn.NewFromConfig(cfg).ListStateMachines(ctx, &sfn.ListStateMachinesInput{})
			return err
		},
		"table": func() error { // our own clients
			at, err := endpointOf("DynamoDB", dynamo.Endpoint, cfg, os.Getenv)
			if err != nil {
				return err
			}
			_, _, err = dynamo.New(dynamo.NewClient(cfg, at), "runs", dynamo.Options{}).Get(ctx, store.Key{PK: "P", SK: "S"})
			return err
		},
		"waiter": func() error {
			at, err := endpointOf("SFN", waiter.Endpoint, cfg, os.Getenv)
			if err != nil {
				return err
			}
			w, err := waiter.New(cfg, at, "arn:aws:states:eu-central-1:123456789012:stateMachine:m")
			if err != nil {
				return err
			}
			return w.Success(ctx, "token")
		},
		"blobs": func() error {
			_, err := blobs.New(blobs.NewClient(cfg, ""), "blobs").Get(ctx, "acme", store.BlobDigest(nil))
			return err
		},
		"s3": func() error {
			_, err := s3.NewFromConfig(cfg).GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("blobs"), Key: aws.String("k")})
			return err
		},
		"bedrock": func() error {
			_, err := bedrockruntime.NewFromConfig(cfg).Converse(ctx, &bedrockruntime.ConverseInput{ModelId: aws.String("m")})
			return err
		},
	} {
		ctx, r.stop = context.WithCancel(t.Context())
		require.ErrorIs(t, ask(), context.Canceled, name)
		require.Contains(t, r.last.Header.Get("Authorization"), "Credential=AKID/", name)
		require.Equal(t, "SESSION", r.last.Header.Get("X-Amz-Security-Token"), name)
		urls[name] = r.last.URL.Scheme + "://" + r.last.URL.Host
	}
	require.Equal(t, urls["s3"], urls["blobs"], "where the SDK's client of S3 asks")
	require.Equal(t, urls["sfn"], urls["waiter"], "where the SDK's client of Step Functions asks")
	require.Equal(t, urls["dynamodb"], urls["table"], "where the SDK's client of DynamoDB asks")
	for _, ours := range []string{"blobs", "waiter", "table"} {
		delete(urls, ours)
	}
	return urls
}

// The clients find their services as they do with the SDK's own configuration.
func TestEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want map[string]string
	}{
		"the region's": {nil, map[string]string{
			"dynamodb": "https://dynamodb.eu-central-1.amazonaws.com", "sfn": "https://states.eu-central-1.amazonaws.com",
			"s3": "https://blobs.s3.eu-central-1.amazonaws.com", "bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com",
		}},
		"FIPS": {map[string]string{envRegion: "us-gov-west-1", envFIPS: "true"}, map[string]string{
			"dynamodb": "https://dynamodb.us-gov-west-1.amazonaws.com", "sfn": "https://states.us-gov-west-1.amazonaws.com",
			"s3": "https://blobs.s3-fips.us-gov-west-1.amazonaws.com", "bedrock": "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
		}},
		"dual stack": {map[string]string{envDualStack: "TRUE"}, map[string]string{
			"dynamodb": "https://dynamodb.eu-central-1.api.aws", "sfn": "https://states.eu-central-1.api.aws",
			"s3": "https://blobs.s3.dualstack.eu-central-1.amazonaws.com", "bedrock": "https://bedrock-runtime.eu-central-1.api.aws",
		}},
		"one for all, and one's own": {map[string]string{envEndpoint: "http://127.0.0.1:1", envEndpoint + "_BEDROCK_RUNTIME": "http://127.0.0.1:2"},
			map[string]string{"dynamodb": "http://127.0.0.1:1", "sfn": "http://127.0.0.1:1", "s3": "http://127.0.0.1:1", "bedrock": "http://127.0.0.1:2"}},
		"each its own": {map[string]string{envEndpoint + "_DYNAMODB": "http://127.0.0.1:1", envEndpoint + "_SFN": "http://127.0.0.1:2",
			envEndpoint + "_S3": "http://127.0.0.1:3", envEndpoint + "_BEDROCK_RUNTIME": "http://127.0.0.1:4"},
			map[string]string{"dynamodb": "http://127.0.0.1:1", "sfn": "http://127.0.0.1:2", "s3": "http://127.0.0.1:3", "bedrock": "http://127.0.0.1:4"}},
		"set and ignored": {map[string]string{envEndpoint: "http://127.0.0.1:1", envIgnoreEndpoints: "true"}, map[string]string{
			"dynamodb": "https://dynamodb.eu-central-1.amazonaws.com", "sfn": "https://states.eu-central-1.amazonaws.com",
			"s3": "https://blobs.s3.eu-central-1.amazonaws.com", "bedrock": "https://bedrock-runtime.eu-central-1.amazonaws.com",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			get := lambdaEnv(c.env)
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
			for _, k := range append(slices.Collect(maps.Keys(c.env)), envRegion, envAccessKey, envSecretKey, envSessionToken) {
				t.Setenv(k, get(k))
			}
			reference, err := config.LoadDefaultConfig(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.want, asked(t, reference), "what the SDK's own configuration makes of it")
			cfg, err := awsConfig(os.Getenv)
			require.NoError(t, err)
			require.Equal(t, c.want, asked(t, cfg))
			require.Equal(t, reference.RequestChecksumCalculation, cfg.RequestChecksumCalculation)
			require.Equal(t, reference.ResponseChecksumValidation, cfg.ResponseChecksumValidation)
		})
	}
}

func TestRetries(t *testing.T) {
	cfg, err := awsConfig(lambdaEnv(map[string]string{envMaxAttempts: "7", envRetryMode: "adaptive"}))
	require.NoError(t, err)
	require.Equal(t, 7, cfg.RetryMaxAttempts)
	require.Equal(t, aws.RetryModeAdaptive, cfg.RetryMode)
	cfg, err = awsConfig(lambdaEnv(nil))
	require.NoError(t, err)
	require.Zero(t, cfg.RetryMaxAttempts, "the SDK's own")
}

// Bad configuration names the variable, and no secret.
func TestAWSConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		envRegion:          {"", "AWS_REGION: want a value, got none"},
		envAccessKey:       {"", "AWS_ACCESS_KEY_ID: want a value, got none"},
		envSecretKey:       {"", "AWS_SECRET_ACCESS_KEY: want a value, got none"},
		envFIPS:            {"yes", `AWS_USE_FIPS_ENDPOINT: want true or false, got "yes"`},
		envDualStack:       {"1", `AWS_USE_DUALSTACK_ENDPOINT: want true or false, got "1"`},
		envIgnoreEndpoints: {"on", `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS: want true or false, got "on"`},
		envMaxAttempts:     {"0", `AWS_MAX_ATTEMPTS: want a number from 1, got "0"`},
		envRetryMode:       {"never", `AWS_RETRY_MODE: want standard or adaptive, got "never"`},
	} {
		_, err := awsConfig(lambdaEnv(map[string]string{name: c.value}))
		require.EqualError(t, err, c.want)
	}
	cfg, err := awsConfig(lambdaEnv(map[string]string{envSessionToken: ""}))
	require.NoError(t, err, "the keys of a user come without a session")
	keys, err := cfg.Credentials.Retrieve(t.Context())
	require.NoError(t, err)
	require.Equal(t, aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", Source: keys.Source}, keys)
}
