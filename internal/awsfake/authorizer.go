package awsfake

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/countersign/countersign/internal/clock"
)

type description = events.APIGatewayV2HTTPRequestContextAuthorizerDescription

// errUnauthorized is all that a caller is told.
var errUnauthorized = errors.New("Unauthorized")

// JWT is a JWT authorizer: RS256, issuer, audience and times are checked.
type JWT struct {
	Issuer, Audience string
	Key              *rsa.PrivateKey // of the issuer; its public half verifies
	Clock            clock.Clock
}

// Token signs claims, to which the issuer, the audience and an hour's validity are added where they are not given.
func (j *JWT) Token(claims map[string]any) (string, error) {
	all := map[string]any{"iss": j.Issuer, "aud": j.Audience, "exp": j.Clock.Now().Add(time.Hour).Unix()}
	for k, v := range claims {
		all[k] = v
	}
	body, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	b64 := base64.RawURLEncoding
	signed := b64.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + b64.EncodeToString(body)
	sum := sha256.Sum256([]byte(signed))
	sig, err := rsa.SignPKCS1v15(nil, j.Key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return signed + "." + b64.EncodeToString(sig), nil
}

func (j *JWT) authorize(r *http.Request) (*description, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 {
		return nil, errUnauthorized
	}
	var header struct{ Alg string }
	var claims map[string]any
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || read(parts[0], &header) != nil || header.Alg != "RS256" || rsa.VerifyPKCS1v15(&j.Key.PublicKey, crypto.SHA256, sum[:], sig) != nil ||
		read(parts[1], &claims) != nil {
		return nil, errUnauthorized
	}
	exp, ok := claims["exp"].(json.Number)
	if !ok || claims["iss"] != j.Issuer || claims["aud"] != j.Audience {
		return nil, errUnauthorized
	}
	if at, err := exp.Int64(); err != nil || !j.Clock.Now().Before(time.Unix(at, 0)) {
		return nil, errUnauthorized
	}
	d := &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{}}
	for name, v := range claims {
		d.Claims[name] = claimText(v)
	}
	return &description{JWT: d}, nil
}

func read(part string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(into)
}

// claimText is a claim as the service hands it on: all are texts, a list is its elements in brackets with spaces
// between them.
func claimText(v any) string {
	list, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = fmt.Sprint(e)
	}
	return "[" + strings.Join(texts, " ") + "]"
}
