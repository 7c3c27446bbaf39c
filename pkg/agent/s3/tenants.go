package s3

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/countersign/countersign/pkg/agent"
)

// tenantsPrefix is what every object's key begins with, before its tenant.
const tenantsPrefix = "T/"

// Tenants lists every tenant that has a blob, sorted: one request a thousand tenants, however many blobs there are. A tenant is listed
// from its first blob on.
func (b *Blobs) Tenants(ctx context.Context) ([]string, error) {
	var out []string
	in := &s3.ListObjectsV2Input{Bucket: &b.bucket, Prefix: aws.String(tenantsPrefix), Delimiter: aws.String("/")}
	for {
		page, err := b.api.ListObjectsV2(ctx, in, b.resend)
		if err != nil {
			return nil, fmt.Errorf("list tenants: %w", err)
		}
		for _, p := range page.CommonPrefixes {
			tenant := strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), tenantsPrefix), "/")
			if agent.ValidTenant(tenant) {
				out = append(out, tenant)
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			slices.Sort(out)
			return out, nil
		}
		in.ContinuationToken = page.NextContinuationToken
	}
}
