package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/repotest"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/web"
)

// operator is a session of the role of operators.
var operator = aws.Credentials{AccessKeyID: "ASIAOPERATOR", SecretAccessKey: "secret"}

// streaming turns the function URL on.
func streaming(d *deployment) {
	d.values["Streaming"], d.values["IamTenant"] = "on", acme
	d.values["OperatorsPrincipal"] = "arn:aws:iam::" + account + ":root"
}

// streamClient is a client of the function URL. Requests counts what it asks.
func (d *deployment) streamClient(role, session string) (c *web.Client, requests *atomic.Int32) {
	d.t.Helper()
	requests = &atomic.Int32{}
	return web.NewURLClient(d.streamURL(role, session), &http.Client{Transport: signing{d, requests}}), requests
}

// streamURL serves the function URL, which evaluates what a role of the template may.
func (d *deployment) streamURL(role, session string) string {
	d.t.Helper()
	lines, err := d.project.Lines(role, d.values)
	require.NoError(d.t, err)
	return serve(d.t, &standins.FunctionURL{
		Function: func(ctx context.Context, payload []byte, out io.Writer) error {
			return d.functions["http"].InvokeWithResponseStream(ctx, payload, out)
		},
		Permits: func(action string) bool {
			_, ok := repotest.Permit(lines, repotest.Request{
				Action: action, Resource: d.values["HttpFunction.Arn"] + ":live", Context: map[string][]string{"lambda:InvokedViaFunctionUrl": {"true"}},
			})
			return ok
		},
		Credentials: operator, ARN: "arn:aws:sts::" + account + ":assumed-role/" + role + "/" + session, Region: region, Clock: d.clock,
	})
}

// signing signs requests as the operator.
type signing struct {
	d        *deployment
	requests *atomic.Int32
}

func (s signing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), operator, r, hex.EncodeToString(sum[:]), "lambda", region, s.d.clock.Now()); err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A stream of the function URL tells what happens while it is open: the request for approval, and what became of it
// once its reader approved. What the URL does not serve is refused, and so is who may not call it.
func TestStreamByTheFunctionURL(t *testing.T) {
	d := deploy(t, newRefundModel(t), streaming)
	s := d.parkedRefund("k")
	client, requests := d.streamClient("OperatorsRole", "ana")
	at, decidedAt := int32(0), int32(0)
	d.follow(client, s.Run, func(e web.Event) {
		switch e.Type {
		case "parked":
			at = requests.Load()
			d.approve(d.anaClient(), s)
		case "decided":
			decidedAt = requests.Load()
		}
	})
	require.Equal(t, at, decidedAt, "the answer that told of the request went on with the decision")

	_, err := client.Run(t.Context(), s.Run)
	requireProblem(t, err, 404, web.NoSuchPath)
	_, err = client.Start(t.Context(), refundStart("k2"))
	requireProblem(t, err, 404, web.NoSuchPath)
	other, _ := d.streamClient("HttpRole", "ana") // a role without permission
	before := d.functions["http"].Invocations()
	require.Error(t, other.Follow(t.Context(), s.Run, "", func(web.Event) error { return nil }))
	require.Equal(t, before, d.functions["http"].Invocations())
}

// What a model writes in functions/step reaches a client of functions/http before the reply is complete.
func TestLiveTextByTheFunctionURL(t *testing.T) {
	rest := make(chan struct{})
	reply := standins.Reply{Blocks: []standins.Block{standins.Text("The wheel ", "is ", "refunded.")}, Usage: standins.Usage{Input: 100, Output: 20}}
	model := newModel(t, func(r standins.BedrockRequest) standins.Turn {
		return standins.Stream{Frames: reply.Frames(), Before: 2, Rest: rest}
	})
	d := deploy(t, model, streaming)
	started, err := d.anaClient().Start(t.Context(), refundStart("k"))
	require.NoError(t, err)
	client, _ := d.streamClient("OperatorsRole", "ana")
	last, live, text := "", "", ""
	deadline := d.clock.Now().Add(4 * time.Minute)
	for !strings.Contains(text, `"run_finish"`) {
		require.True(t, d.clock.Now().Before(deadline), text)
		require.NoError(t, client.FollowEncoded(t.Context(), started.ID, "canonical", last, func(id string, event json.RawMessage) error {
			if id != "" {
				last, text = id, text+string(event)
				return nil
			}
			if live += string(event); strings.Contains(live, "The wheel ") && !strings.Contains(text, "refunded.") {
				select {
				case <-rest:
				default:
					close(rest) // the model goes on once its first piece was shown
				}
			}
			return nil
		}))
	}
	require.Contains(t, text, "The wheel is refunded.")
}
