package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/store"
)

// tenantsPrefix is what every object's key begins with, before its tenant.
const tenantsPrefix = "T/"

// Tenants lists every tenant that has a blob, sorted: one request a thousand tenants, however many blobs there are. A tenant is listed
// from its first blob on.
func (b *Blobs) Tenants(ctx context.Context) ([]string, error) {
	var out []string
	query := url.Values{"list-type": {"2"}, "prefix": {tenantsPrefix}, "delimiter": {"/"}}
	for {
		page, err := b.prefixes(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("list tenants: %w", err)
		}
		for _, p := range page.Prefixes {
			tenant := strings.TrimSuffix(strings.TrimPrefix(p, tenantsPrefix), "/")
			if agent.ValidTenant(tenant) {
				out = append(out, tenant)
			}
		}
		if !page.Truncated {
			slices.Sort(out)
			return out, nil
		}
		query.Set("continuation-token", page.Next)
	}
}

// page is an answer to ListObjectsV2.
type page struct {
	XMLName   xml.Name `xml:"ListBucketResult"`
	Truncated bool     `xml:"IsTruncated"`
	Next      string   `xml:"NextContinuationToken"`
	Prefixes  []string `xml:"CommonPrefixes>Prefix"`
}

// prefixes asks for a page.
func (b *Blobs) prefixes(ctx context.Context, query url.Values) (page, error) {
	resp, err := b.client.do(ctx, request{method: http.MethodGet, bucket: b.bucket, query: query, sha256: ofNothing})
	if throttled(err) {
		err = fmt.Errorf("%w: %w", store.ErrThrottled, err)
	}
	if err != nil {
		return page{}, err
	}
	defer resp.Body.Close()
	var p page
	if err := xml.NewDecoder(io.LimitReader(resp.Body, maxList)).Decode(&p); err != nil {
		return page{}, fmt.Errorf("read the list: %w", err)
	}
	if p.Truncated && (p.Next == "" || p.Next == query.Get("continuation-token")) {
		return page{}, errors.New("read the list: it goes on, and does not say where")
	}
	return p, nil
}
