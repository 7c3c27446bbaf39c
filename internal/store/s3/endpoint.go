package s3

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// place is where S3 is. A test holds it to what the SDK's own rules say of every region.
type place struct {
	endpoint string // stands in for AWS; empty = the region's own
	host     string // of the region's own endpoint
}

// The questions that sources of an aws.Config answer, by the SDK's names for them.
type (
	endpointSource interface {
		GetServiceBaseEndpoint(ctx context.Context, service string) (url string, found bool, err error)
	}
	ignoreSource interface {
		GetIgnoreConfiguredEndpoints(context.Context) (ignore, found bool, err error)
	}
	fipsSource interface {
		GetUseFIPSEndpoint(context.Context) (state aws.FIPSEndpointState, found bool, err error)
	}
	dualStackSource interface {
		GetUseDualStackEndpoint(context.Context) (state aws.DualStackEndpointState, found bool, err error)
	}
)

// placeOf finds S3 for a configuration: at endpoint, else where the configuration says S3 is, else in its region.
func placeOf(cfg aws.Config, endpoint string) (place, error) {
	if endpoint != "" {
		return place{endpoint: endpoint}, nil
	}
	endpoint, err := configured(cfg)
	if err != nil || endpoint != "" {
		return place{endpoint: endpoint}, err
	}
	if cfg.Region == "" {
		return place{}, fmt.Errorf("want a region, got none")
	}
	fips, err := ask(cfg, func(s fipsSource) (aws.FIPSEndpointState, bool, error) {
		return s.GetUseFIPSEndpoint(context.Background())
	})
	if err != nil {
		return place{}, err
	}
	dual, err := ask(cfg, func(s dualStackSource) (aws.DualStackEndpointState, bool, error) {
		return s.GetUseDualStackEndpoint(context.Background())
	})
	if err != nil {
		return place{}, err
	}
	host := "s3"
	if fips == aws.FIPSEndpointStateEnabled {
		host += "-fips"
	}
	if dual == aws.DualStackEndpointStateEnabled {
		host += ".dualstack"
	}
	return place{host: host + "." + cfg.Region + "." + awshttp.Suffix(cfg.Region, false)}, nil
}

// configured is the endpoint that a configuration names: for S3, else for every service; empty = none, or they are to be ignored.
func configured(cfg aws.Config) (string, error) {
	ignore, err := ask(cfg, func(s ignoreSource) (bool, bool, error) { return s.GetIgnoreConfiguredEndpoints(context.Background()) })
	if err != nil {
		return "", err
	}
	if !ignore {
		url, err := ask(cfg, func(s endpointSource) (string, bool, error) {
			return s.GetServiceBaseEndpoint(context.Background(), "S3")
		})
		if err != nil || url != "" {
			return url, err
		}
	}
	return aws.ToString(cfg.BaseEndpoint), nil
}

// ask gives the answer of the first source that has one, else its zero value.
func ask[Source, Answer any](cfg aws.Config, question func(Source) (Answer, bool, error)) (none Answer, err error) {
	for _, c := range cfg.ConfigSources {
		s, ok := c.(Source)
		if !ok {
			continue
		}
		answer, found, err := question(s)
		if err != nil {
			return none, fmt.Errorf("read the configuration: %w", err)
		}
		if found {
			return answer, nil
		}
	}
	return none, nil
}

// of is the URL of an object of a bucket, or of the bucket itself where key is empty. A key is one of ours, of which no character needs
// to be escaped. At AWS, buckets are hosts, but for those with a dot, which a certificate for all hosts does not cover; elsewhere
// they are part of the path.
func (p place) of(bucket, key string) (string, error) {
	if !validBucket(bucket) {
		return "", fmt.Errorf("bucket %q: want a name of 3 to 63 of a-z, 0-9, . and -", bucket)
	}
	switch {
	case p.endpoint != "":
		return strings.TrimSuffix(p.endpoint, "/") + "/" + bucket + "/" + key, nil
	case strings.Contains(bucket, "."):
		return "https://" + p.host + "/" + bucket + "/" + key, nil
	default:
		return "https://" + bucket + "." + p.host + "/" + key, nil
	}
}

// validBucket reports whether a bucket can have this name; the ARN of an access point is none.
func validBucket(name string) bool {
	if len(name) < 3 || len(name) > 63 || strings.Trim(name, ".-") != name {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}
