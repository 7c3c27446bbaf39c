package awsfake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
)

// MACs is AWS KMS as far as GenerateMac and VerifyMac with keys for HMAC_SHA_256 go: it checks signatures, names, sizes and members. Safe for concurrent
// use once it is made.
type MACs struct {
	Credentials aws.Credentials
	Region      string
	Clock       clock.Clock
	Keys        map[string][]byte // by ARN
	// Refuse is asked before the n-th request, from 1: a status other than 0 is its answer, with that code. Nil = nothing is refused.
	Refuse func(n int) (status int, code string)

	mu    sync.Mutex
	count int
}

// Count is how many requests came.
func (m *MACs) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

func (m *MACs) next() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	return m.count
}

// ServeHTTP takes both operations.
func (m *MACs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := m.next()
	body, err := io.ReadAll(r.Body)
	if m.Refuse != nil {
		if status, code := m.Refuse(n); status != 0 {
			refuseMAC(w, status, code)
			return
		}
	}
	switch {
	case err != nil || r.Method != http.MethodPost || r.URL.Path != "/" || r.Header.Get("Content-Type") != "application/x-amz-json-1.1":
		refuseMAC(w, http.StatusBadRequest, "UnknownOperationException")
	case !signed(r, body, m.Credentials, "kms", m.Region):
		refuseMAC(w, http.StatusBadRequest, "InvalidSignatureException")
	default:
		m.answer(w, r.Header.Get("X-Amz-Target"), body)
	}
}

func (m *MACs) answer(w http.ResponseWriter, target string, body []byte) {
	var in struct {
		KeyID        string `json:"KeyId"`
		Message      []byte
		Mac          []byte
		MacAlgorithm string
	}
	err := json.Unmarshal(body, &in)
	key, known := m.Keys[in.KeyID]
	mac := hmac.New(sha256.New, key)
	mac.Write(in.Message)
	out := map[string]any{"KeyId": in.KeyID, "MacAlgorithm": in.MacAlgorithm}
	switch {
	case err != nil || len(in.Message) == 0 || len(in.Message) > 4096:
		refuseMAC(w, http.StatusBadRequest, "ValidationException")
	case !known:
		refuseMAC(w, http.StatusBadRequest, "NotFoundException")
	case in.MacAlgorithm != "HMAC_SHA_256":
		refuseMAC(w, http.StatusBadRequest, "InvalidKeyUsageException")
	case target == "TrentService.GenerateMac" && in.Mac == nil:
		out["Mac"] = mac.Sum(nil)
		_ = json.NewEncoder(w).Encode(out) // the client is gone if this fails
	case target == "TrentService.VerifyMac" && hmac.Equal(mac.Sum(nil), in.Mac):
		out["MacValid"] = true
		_ = json.NewEncoder(w).Encode(out) // the client is gone if this fails
	case target == "TrentService.VerifyMac":
		refuseMAC(w, http.StatusBadRequest, "KMSInvalidMacException")
	default:
		refuseMAC(w, http.StatusBadRequest, "UnknownOperationException")
	}
}

func refuseMAC(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	if code != "" {
		code = "com.amazonaws.kms#" + code
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": "a text that may repeat the message: s3cret"}) // the client is gone if this fails
}
