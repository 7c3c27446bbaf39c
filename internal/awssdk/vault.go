package awssdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/tool"
)

// EnvSecretsPrefix names what the names of a deployment's secrets begin with in AWS Secrets Manager; the tenant, '/' and the
// secret's name follow.
const EnvSecretsPrefix = "COUNTERSIGN_SECRETS_PREFIX"

// How long a secret's value is kept, and how many values are.
const (
	keepFor = 5 * time.Minute
	maxKept = 1000
)

// Vault are the secrets of AWS Secrets Manager that begin with a prefix. A value is kept for five minutes, so a
// rotated one counts no later than that; what is missing is asked for again each time. Make one with NewVault. Safe
// for concurrent use.
type Vault struct {
	prefix         string
	getSecretValue Operation[
		secretsmanager.GetSecretValueInput, secretsmanager.GetSecretValueOutput, secretsmanager.Options,
	]
	clock clock.Clock

	mu   sync.Mutex
	kept map[string]value // by full name
}

type value struct {
	text  string
	until time.Time
}

// DeployedSecrets are the secrets of a deployed function, as its environment names them. Without a prefix there are none.
func DeployedSecrets(cfg aws.Config, getenv func(string) string, clk clock.Clock) tool.Secrets {
	prefix := getenv(EnvSecretsPrefix)
	if prefix == "" {
		return tool.NoSecrets{}
	}
	return NewVault(cfg, prefix, clk)
}

// NewVault makes a vault of the secrets whose names begin with prefix.
func NewVault(cfg aws.Config, prefix string, clk clock.Clock) *Vault {
	client := secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) {
		o.HTTPClient = WithTimeout(o.HTTPClient, attemptTimeout)
		o.Retryer = Retryer()
	})
	return &Vault{prefix: prefix, getSecretValue: client.GetSecretValue, clock: clk, kept: map[string]value{}}
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

// get asks for a value. A secret that is not there, or is about to be deleted, is tool.ErrNoSecret.
func (v *Vault) get(ctx context.Context, full string) (string, error) {
	out, err := v.getSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &full})
	err = Bare(err)
	var refused *Refusal
	switch {
	case errors.As(err, &refused) &&
		(refused.Code == "ResourceNotFoundException" || refused.Code == "InvalidRequestException"):
		return "", tool.ErrNoSecret
	case err != nil:
		return "", err
	case out.SecretString != nil:
		return *out.SecretString, nil
	case out.SecretBinary != nil:
		return "", errors.New("it is binary; want a text")
	}
	return "", errors.New("no value in the answer")
}
