package slack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// EnvSigningSecret names the signing secrets of a deployment, with commas between several.
const EnvSigningSecret = "COUNTERSIGN_SLACK_SIGNING_SECRET"

// maxClockSkew is how far the time of a signature may be from now, either way.
const maxClockSkew = 300 * time.Second

// The headers of a signed request.
const (
	headerSignature = "X-Slack-Signature"
	headerTime      = "X-Slack-Request-Timestamp"
)

// Sign is Slack's signature of a body: v0= and the HMAC-SHA-256 of v0:seconds:body in hex. Seconds is Unix time.
func Sign(secret, seconds string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("v0:" + seconds + ":"))
	mac.Write(body)
	return "v0=" + hex.EncodeToString(mac.Sum(nil))
}

// isVerified reports whether one of the secrets signed the body within maxClockSkew. The comparison takes constant
// time.
func isVerified(secrets []string, h http.Header, body []byte, now time.Time) bool {
	at, given := h.Get(headerTime), h.Get(headerSignature)
	seconds, err := strconv.ParseUint(at, 10, 40)
	if err != nil || len(h.Values(headerTime)) != 1 || len(h.Values(headerSignature)) != 1 {
		return false
	}
	if off := now.Sub(time.Unix(int64(seconds), 0)); off > maxClockSkew || off < -maxClockSkew {
		return false
	}
	signed := false
	for _, s := range secrets {
		ok := s != "" && hmac.Equal([]byte(Sign(s, at, body)), []byte(given))
		signed = signed || ok
	}
	return signed
}

// ParseSecrets reads the signing secrets of an app, separated by commas, so that a new one can be added before the old
// one is removed. It skips empty ones.
func ParseSecrets(text string) []string {
	var out []string
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
