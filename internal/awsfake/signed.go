package awsfake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

var authorization = regexp.MustCompile(
	`^AWS4-HMAC-SHA256 Credential=[^,]+, ?SignedHeaders=([^,]+), ?Signature=[0-9a-f]{64}$`)

// signed reports whether the request is signed by the caller, for a service.
func signed(r *http.Request, body []byte, by aws.Credentials, service, region string) bool {
	given := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if given == nil || err != nil {
		return false
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.EscapedPath(), bytes.NewReader(body))
	if err != nil {
		return false
	}
	for _, name := range strings.Split(given[1], ";") {
		if name != "host" && name != "content-length" {
			again.Header.Set(name, r.Header.Get(name))
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(context.Background(), by, again, hex.EncodeToString(sum[:]), service, region, at); err != nil {
		return false
	}
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}
