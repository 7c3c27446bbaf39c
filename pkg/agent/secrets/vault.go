package secrets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/tool/port"
)

// EnvPrefix names what the names of a deployment's secrets begin with in AWS Secrets Manager; the tenant, '/' and the secret's name follow.
const EnvPrefix = "COUNTERSIGN_SECRETS_PREFIX"

// Times of one attempt, how often a secret is asked for, how long its value is kept, and what is read of an answer, in bytes.
const (
	attemptTimeout = 8 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
	keepFor        = 5 * time.Minute
	maxAnswer      = 256 << 10
	maxKept        = 1000 // values
)

// service is Secrets Manager's name in signatures.
const service = "secretsmanager"

// Vault are the secrets of AWS Secrets Manager that begin with a prefix. It makes the one request it needs itself, with the SDK's
// signatures and transport (ADR 15). A value is kept for five minutes, so a rotated one counts no later than that; what is missing is
// asked for again each time. Make one with NewVault. Safe for concurrent use.
type Vault struct {
	prefix, url, region string
	http                aws.HTTPClient
	credentials         aws.CredentialsProvider
	signer              *v4.Signer
	retryer             aws.RetryerV2
	clock               clock.Clock

	mu   sync.Mutex
	kept map[string]value // by full name
}

type value struct {
	text  string
	until time.Time
}

// NewVault asks Secrets Manager at endpoint; Endpoint gives AWS' own. An HTTP client in cfg that is not the SDK's own is kept as it is. A
// configuration without a region or credentials makes every Secret fail.
func NewVault(cfg aws.Config, endpoint, prefix string, clk clock.Clock) *Vault {
	return &Vault{
		prefix: prefix, url: strings.TrimSuffix(endpoint, "/") + "/", region: cfg.Region, http: timed(cfg.HTTPClient), credentials: cfg.Credentials,
		signer: v4.NewSigner(), clock: clk, kept: map[string]value{},
		retryer: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, backoff }),
	}
}

// Endpoint is where Secrets Manager is in a region.
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

// Secret is the value of that name, as it is or was less than five minutes ago. A secret that is binary is an error.
func (v *Vault) Secret(ctx context.Context, tenant, name string) (string, error) {
	if !port.SecretName(name) || tenant == "" || strings.Contains(tenant, "/") {
		return "", fmt.Errorf("%w of that name", port.ErrNoSecret)
	}
	full := v.prefix + tenant + "/" + name
	if text, ok := v.cached(full); ok {
		return text, nil
	}
	text, err := v.get(ctx, full)
	if err != nil {
		return "", fmt.Errorf("%s in Secrets Manager: %w", full, err)
	}
	v.keep(full, text)
	return text, nil
}

func (v *Vault) cached(full string) (string, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	k, ok := v.kept[full]
	return k.text, ok && v.clock.Now().Before(k.until)
}

func (v *Vault) keep(full, text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.kept) >= maxKept { // whoever has so many asks again
		clear(v.kept)
	}
	v.kept[full] = value{text, v.clock.Now().Add(keepFor)}
}

// get asks until it is answered, cannot be, or has asked often enough.
func (v *Vault) get(ctx context.Context, full string) (string, error) {
	body, err := json.Marshal(map[string]string{"SecretId": full})
	if err != nil {
		return "", err
	}
	for attempt := 1; ; attempt++ {
		text, err := v.ask(ctx, body)
		var said *refusal
		if err == nil || attempt == v.retryer.MaxAttempts() || ctx.Err() != nil || errors.As(err, &said) && !said.passes() {
			return text, err
		}
		delay, tooMany := v.retryer.RetryDelay(attempt, err)
		if tooMany != nil || v.clock.Sleep(ctx, delay) != nil {
			return "", err
		}
	}
}

// ask makes one attempt.
func (v *Vault) ask(ctx context.Context, body []byte) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "secretsmanager.GetSecretValue")
	r.Header.Set("User-Agent", "countersign")
	if v.credentials == nil {
		return "", fmt.Errorf("sign the request: want credentials, got none")
	}
	keys, err := v.credentials.Retrieve(ctx)
	if err != nil {
		return "", fmt.Errorf("sign the request: %w", err)
	}
	sum := sha256.Sum256(body)
	if err := v.signer.SignHTTP(ctx, keys, r, hex.EncodeToString(sum[:]), service, v.region, v.clock.Now()); err != nil {
		return "", fmt.Errorf("sign the request: %w", err)
	}
	resp, err := v.http.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return read(resp)
}

// read takes the value out of an answer. Its errors hold nothing of it.
func read(resp *http.Response) (string, error) {
	var said struct {
		Type         string `json:"__type"`
		SecretString *string
		SecretBinary *string
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	if json.Unmarshal(data, &said) != nil {
		said.Type = ""
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return "", &refusal{code: said.Type[strings.LastIndex(said.Type, "#")+1:], status: resp.StatusCode}
	case said.SecretString != nil:
		return *said.SecretString, nil
	case said.SecretBinary != nil:
		return "", &refusal{code: "it is binary; want a text", status: resp.StatusCode}
	default:
		return "", &refusal{code: "no value in the answer", status: http.StatusInternalServerError}
	}
}

// maxCode is how many bytes of a refusal's name are kept. What else it says is not.
const maxCode = 100

// refusal is Secrets Manager's name for why it gave no value.
type refusal struct {
	code   string
	status int
}

func (r *refusal) Error() string {
	switch {
	case r.Unwrap() != nil:
		return port.ErrNoSecret.Error()
	case r.code == "":
		return fmt.Sprintf("refused with status %d", r.status)
	}
	return "refused: " + r.code[:min(len(r.code), maxCode)]
}

// Unwrap makes a secret that is not there, or is about to be deleted, port.ErrNoSecret.
func (r *refusal) Unwrap() error {
	if r.code == "ResourceNotFoundException" || r.code == "InvalidRequestException" {
		return port.ErrNoSecret
	}
	return nil
}

// passes reports whether asking again may help.
func (r *refusal) passes() bool {
	return r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests || r.code == "ThrottlingException" ||
		r.code == "InternalServiceError"
}
