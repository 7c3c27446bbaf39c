package awshttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxAnswer is what is read of an answer, in bytes, where its request does not say.
const maxAnswer = 64 << 10

// Operation is one operation of a service that speaks one of AWS' JSON protocols.
type Operation struct {
	URL     string // of the service
	Version string // of the protocol, "1.0" or "1.1"
	Target  string // the service's and the operation's name, as "AWSEvents.PutEvents"
	Body    []byte // JSON
	Limit   int64  // bytes of the answer that are read at most; 0 = 64 KiB
}

// Answer is what a service answers to an operation.
type Answer struct {
	Status int    // of HTTP
	Text   []byte // JSON, if the service is well

	resp *http.Response
}

// Header is one of the answer's; "" = it has none of that name.
func (a Answer) Header(name string) string { return a.resp.Header.Get(name) }

// Code is the name of the answer's error; "" = it has none that is a name.
func (a Answer) Code() string { return Code(a.resp, a.Text) }

// Message is what the answer says of its error; "" = nothing.
func (a Answer) Message() string { return message(a.Text) }

// Refused is the SDK's error for the answer.
func (a Answer) Refused(code, message string) error { return Refused(a.resp, code, message) }

// Post sends an operation once and reads the answer, whatever its status.
func (c *Client) Post(ctx context.Context, o Operation) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL, bytes.NewReader(o.Body))
	if err != nil {
		return Answer{}, err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-"+o.Version)
	r.Header.Set("X-Amz-Target", o.Target)
	r.Header.Set("Accept-Encoding", "identity") // or the transport would ask for gzip, and an answer's sum not be that of its text
	resp, err := c.Send(r, Sum(o.Body))
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	limit := o.Limit
	if limit == 0 {
		limit = maxAnswer
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return Answer{}, &smithyhttp.RequestSendError{Err: err}
	}
	return Answer{Status: resp.StatusCode, Text: text, resp: resp}, nil
}

// Sum is the SHA-256 of a body as it is signed.
func Sum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
