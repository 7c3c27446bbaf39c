package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awshttp"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tool"
)

// EnvPrefix names what the names of a deployment's secrets begin with in AWS Secrets Manager; the tenant, '/' and the secret's name follow.
const EnvPrefix = "COUNTERSIGN_SECRETS_PREFIX"

// Times of one attempt, how often a secret is asked for, how long its value is kept, and what is read of an answer, in bytes.
const (
	attemptTimeout = 8 * time.Second
	attempts       = 4
	backoff        = time.Second
	keepFor        = 5 * time.Minute
	maxAnswer      = 256 << 10
	maxKept        = 1000 // values
)

// service is Secrets Manager's name in signatures.
const service = "secretsmanager"

// Vault are the secrets of AWS Secrets Manager that begin with a prefix. A value is kept for five minutes, so a rotated one counts no later
// than that; what is missing is asked for again each time. Make one with NewVault. Safe for concurrent use.
type Vault struct {
	prefix, url string
	client      *awshttp.Client
	clock       clock.Clock

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
		prefix: prefix, url: strings.TrimSuffix(endpoint, "/") + "/", clock: clk, kept: map[string]value{},
		client: awshttp.New(cfg, awshttp.Options{Service: service, Timeout: attemptTimeout, Attempts: attempts, Backoff: backoff, Clock: clk}),
	}
}

// Endpoint is where Secrets Manager is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	return awshttp.Endpoint(service, region, fips, dualStack)
}

// Secret is the value of that name, as it is or was less than five minutes ago. A secret that is binary is an error.
func (v *Vault) Secret(ctx context.Context, tenant, name string) (string, error) {
	if !tool.SecretName(name) || tenant == "" || strings.Contains(tenant, "/") {
		return "", fmt.Errorf("%w of that name", tool.ErrNoSecret)
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
	var text string
	err = v.client.Try(ctx, func() (failed error) {
		text, failed = v.ask(ctx, body)
		return failed
	}, func(err error) bool {
		var said *refusal
		return ctx.Err() == nil && (!errors.As(err, &said) || said.passes())
	})
	return text, err
}

// ask makes one attempt.
func (v *Vault) ask(ctx context.Context, body []byte) (string, error) {
	answer, err := v.client.Post(ctx, awshttp.Operation{URL: v.url, Version: "1.1", Target: "secretsmanager.GetSecretValue", Body: body, Limit: maxAnswer})
	if err != nil {
		return "", err
	}
	return read(answer)
}

// read takes the value out of an answer. Its errors hold nothing of it.
func read(answer awshttp.Answer) (string, error) {
	var said struct {
		SecretString *string
		SecretBinary *string
	}
	err := json.Unmarshal(answer.Text, &said)
	switch {
	case answer.Status != http.StatusOK:
		return "", &refusal{code: answer.Code(), status: answer.Status}
	case err == nil && said.SecretString != nil:
		return *said.SecretString, nil
	case err == nil && said.SecretBinary != nil:
		return "", &refusal{code: "it is binary; want a text", status: answer.Status}
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
		return tool.ErrNoSecret.Error()
	case r.code == "":
		return fmt.Sprintf("refused with status %d", r.status)
	}
	return "refused: " + r.code[:min(len(r.code), maxCode)]
}

// Unwrap makes a secret that is not there, or is about to be deleted, tool.ErrNoSecret.
func (r *refusal) Unwrap() error {
	if r.code == "ResourceNotFoundException" || r.code == "InvalidRequestException" {
		return tool.ErrNoSecret
	}
	return nil
}

// passes reports whether asking again may help.
func (r *refusal) passes() bool {
	return r.status >= http.StatusInternalServerError || r.status == http.StatusTooManyRequests || r.code == "ThrottlingException" ||
		r.code == "InternalServiceError"
}
