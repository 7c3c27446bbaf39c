package bedrockfake

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Secret is the secret key of Server.Config's credentials: a text that must never show up anywhere.
const Secret = "canary-secret-access-key"

type credentials struct{}

func (credentials) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIACANARY", SecretAccessKey: Secret, Source: "bedrockfake"}, nil
}
