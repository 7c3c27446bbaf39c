// Package kms signs links with HMAC keys that never leave AWS KMS: a link.Signer over GenerateMac and VerifyMac.
package kms

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/people/link"
)

// Times of one attempt, how often KMS is asked, and what is read of an answer, in bytes.
const (
	attemptTimeout = 5 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
	maxAnswer      = 64 << 10
)

// What KMS takes: the algorithm that every key must be for, and the longest message, in bytes.
const (
	algorithm  = "HMAC_SHA_256"
	maxMessage = 4096
)

// service is KMS' name in signatures.
const service = "kms"

// Keys are HMAC keys in KMS, the newest first: it signs, all of them verify. It makes the requests it needs itself, with the SDK's signatures and transport
// (ADR 15). Make one with New. Safe for concurrent use.
type Keys struct {
	ids, arns   []string
	url, region string
	http        aws.HTTPClient
	credentials aws.CredentialsProvider
	signer      *v4.Signer
	retryer     aws.RetryerV2
	clock       clock.Clock
}

var _ link.Signer = (*Keys)(nil)

// New signs with the keys of those ARNs, with commas between them, the newest first, at endpoint: Endpoint gives AWS' own. An alias is refused: what it
// stands for changes. An HTTP client in cfg that is not the SDK's own is kept as it is.
func New(cfg aws.Config, endpoint, arns string, clk clock.Clock) (*Keys, error) {
	k := &Keys{
		url: strings.TrimSuffix(endpoint, "/") + "/", region: cfg.Region, http: timed(cfg.HTTPClient), credentials: cfg.Credentials,
		signer: v4.NewSigner(), clock: clk,
		retryer: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, backoff }),
	}
	for arn := range strings.SplitSeq(arns, ",") {
		parts := strings.Split(arn, ":")
		id, isKey := strings.CutPrefix(parts[len(parts)-1], "key/")
		if len(parts) != 6 || parts[0] != "arn" || parts[2] != service || !isKey || !link.ValidKeyID(id) {
			return nil, fmt.Errorf("want the ARNs of keys, arn:aws:kms:REGION:ACCOUNT:key/ID, with commas between them, got %q", arn)
		}
		k.ids, k.arns = append(k.ids, id), append(k.arns, arn)
	}
	return k, nil
}

// Endpoint is where KMS is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	host := service
	if fips {
		host += "-fips"
	}
	suffix := "amazonaws.com"
	switch china := strings.HasPrefix(region, "cn-"); {
	case china && dualStack:
		suffix = "api.amazonwebservices.com.cn"
	case china:
		suffix = "amazonaws.com.cn"
	case dualStack:
		suffix = "api.aws"
	}
	return "https://" + host + "." + region + "." + suffix
}

// timed is the SDK's client with our timeouts and without redirects: what is signed for one host is no other's.
func timed(c aws.HTTPClient) aws.HTTPClient {
	if c == nil {
		c = awshttp.NewBuildableClient()
	}
	b, ok := c.(*awshttp.BuildableClient)
	if !ok {
		return c
	}
	b = b.WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
	return &http.Client{
		Transport: b.GetTransport(), Timeout: attemptTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// message is what is signed: everything with its length, so that no two lists read alike.
func message(key, audience string, fields []string) ([]byte, error) {
	var m []byte
	for _, field := range append([]string{"countersign 1", audience, key}, fields...) {
		m = binary.BigEndian.AppendUint64(m, uint64(len(field)))
		m = append(m, field...)
	}
	if len(m) > maxMessage {
		return nil, fmt.Errorf("want a message of at most %d bytes, got %d", maxMessage, len(m))
	}
	return m, nil
}

// request is that of both operations; Mac goes with VerifyMac.
type request struct {
	KeyID        string `json:"KeyId"`
	Message      []byte
	Mac          []byte `json:",omitempty"`
	MacAlgorithm string
}

// Sign implements link.Signer.
func (k *Keys) Sign(ctx context.Context, audience string, fields ...string) (key string, mac []byte, err error) {
	m, err := message(k.ids[0], audience, fields)
	if err != nil {
		return "", nil, fmt.Errorf("sign: %w", err)
	}
	var said struct{ Mac []byte }
	if err := k.ask(ctx, "GenerateMac", request{KeyID: k.arns[0], Message: m, MacAlgorithm: algorithm}, &said); err != nil {
		return "", nil, fmt.Errorf("sign with key %s: %w", k.ids[0], err)
	}
	if len(said.Mac) != sha256.Size {
		return "", nil, fmt.Errorf("sign with key %s: want a MAC of %d bytes, got %d", k.ids[0], sha256.Size, len(said.Mac))
	}
	return k.ids[0], said.Mac, nil
}

// Verify implements link.Signer. KMS compares, in constant time.
func (k *Keys) Verify(ctx context.Context, mac []byte, key, audience string, fields ...string) (bool, error) {
	for i, id := range k.ids {
		if id == key {
			return k.verify(ctx, mac, i, audience, fields)
		}
	}
	return false, nil
}

func (k *Keys) verify(ctx context.Context, mac []byte, i int, audience string, fields []string) (bool, error) {
	m, err := message(k.ids[i], audience, fields)
	if err != nil || len(mac) != sha256.Size { // Sign makes none of either
		return false, nil
	}
	var said struct{ MacValid bool }
	err = k.ask(ctx, "VerifyMac", request{KeyID: k.arns[i], Message: m, Mac: mac, MacAlgorithm: algorithm}, &said)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.code == "KMSInvalidMacException":
		return false, nil
	case err != nil:
		return false, fmt.Errorf("verify with key %s: %w", k.ids[i], err)
	}
	return said.MacValid, nil
}

// ask asks until it is answered, cannot be, or has asked often enough.
func (k *Keys) ask(ctx context.Context, operation string, in request, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := k.try(ctx, operation, body, out)
		var said *refusal
		if err == nil || attempt == k.retryer.MaxAttempts() || ctx.Err() != nil || errors.As(err, &said) && !said.passes() {
			return err
		}
		delay, tooMany := k.retryer.RetryDelay(attempt, err)
		if tooMany != nil || k.clock.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// try makes one attempt.
func (k *Keys) try(ctx context.Context, operation string, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "TrentService."+operation)
	r.Header.Set("User-Agent", "countersign")
	if k.credentials == nil {
		return errors.New("sign the request: want credentials, got none")
	}
	keys, err := k.credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := k.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), service, k.region, k.clock.Now()); err != nil {
		return fmt.Errorf("sign the request: %w", err)
	}
	resp, err := k.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return read(resp, out)
}

// read takes an answer. Its errors hold KMS' name for what is wrong, and nothing else of it.
func read(resp *http.Response, out any) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		if json.Unmarshal(data, out) != nil {
			return &refusal{code: "no answer to it", status: http.StatusInternalServerError}
		}
		return nil
	}
	var said struct {
		Type string `json:"__type"`
	}
	if json.Unmarshal(data, &said) != nil {
		said.Type = ""
	}
	return &refusal{code: said.Type[strings.LastIndex(said.Type, "#")+1:], status: resp.StatusCode}
}

// maxCode is how many bytes of a refusal's name are kept.
const maxCode = 100

// refusal is KMS' name for why it did not do it.
type refusal struct {
	code   string
	status int
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("refused with status %d", r.status)
	}
	return "refused: " + r.code[:min(len(r.code), maxCode)]
}

// passes reports whether asking again may help.
func (r *refusal) passes() bool {
	if r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests {
		return true
	}
	return r.code == "ThrottlingException" || r.code == "KMSInternalException" || r.code == "DependencyTimeoutException" || r.code == "KeyUnavailableException"
}
