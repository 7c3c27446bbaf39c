package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
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
	Truncated bool
	Next      string
	Prefixes  []string
}

// readPage reads an answer to ListObjectsV2.
func readPage(r io.Reader) (page, error) {
	list, err := readXML(r, maxList)
	if err != nil {
		return page{}, err
	}
	if list.name != "ListBucketResult" {
		return page{}, fmt.Errorf("got %s, want ListBucketResult", short(list.name))
	}
	p := page{Next: list.last("NextContinuationToken")}
	if p.Truncated, err = list.flag("IsTruncated"); err != nil {
		return page{}, err
	}
	for _, common := range list.children {
		if common.name != "CommonPrefixes" {
			continue
		}
		for _, prefix := range common.children {
			if prefix.name == "Prefix" {
				p.Prefixes = append(p.Prefixes, string(prefix.text))
			}
		}
	}
	return p, nil
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
	p, err := readPage(resp.Body)
	if err != nil {
		return page{}, fmt.Errorf("read the list: %w", err)
	}
	if p.Truncated && (p.Next == "" || p.Next == query.Get("continuation-token")) {
		return page{}, errors.New("read the list: it goes on, and does not say where")
	}
	return p, nil
}
