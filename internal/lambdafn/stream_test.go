package lambdafn_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/web"
)

// follow sends an event of the function URL. Who calls is signed by IAM.
func (s *stack) follow(
	line string, ended func(context.Context), caller func([]byte) []byte, headers ...string,
) *events.LambdaFunctionURLStreamingResponse {
	s.t.Helper()
	d := s.deployment(s.machine.Ports)
	stream := d.Stream(s.agents, lambdafn.Identity{IAMTenant: "acme", IAMAccount: "000000000000"}, ended)
	ctx, cancel := context.WithTimeout(s.t.Context(), 29*time.Second)
	s.t.Cleanup(cancel)
	out := must(stream(ctx, caller(request(line, "", nil, headers...))))
	return out
}

// A function URL serves nothing but events, to nobody but who IAM has verified.
func TestFunctionURLRefuses(t *testing.T) {
	inStack(t, pay, func(t *testing.T, s *stack) {
		one := s.waiting(ana, "k")
		read := "GET /v1/runs/" + one.ID + "/events"
		nobody := func(event []byte) []byte { return event }
		foreign := func(event []byte) []byte {
			return authorised(event, map[string]any{"iam": map[string]any{"userArn": "arn:aws:sts::111111111111:assumed-role/operators/bob"}})
		}
		writes := s.writes()
		for _, c := range []struct {
			line   string
			caller func([]byte) []byte
			status int
			kind   web.ProblemType
		}{
			{read, byIAM, 200, ""},
			{read, nobody, 401, web.Unauthenticated},
			{read, foreign, 403, web.NotAllowed},
			{"GET /v1/runs/rother/events", byIAM, 404, web.RunNotFound},
			{"GET /v1/runs", byIAM, 404, web.NoSuchPath},
			{"GET /v1/runs/" + one.ID, byIAM, 404, web.NoSuchPath},
			{"POST /v1/runs/" + one.ID + "/cancel", byIAM, 404, web.NoSuchPath},
			{"POST /v1/approvals/" + one.Waiting[0].Approval + "/decision", byIAM, 404, web.NoSuchPath},
			{"GET /v1/chat/payer", byIAM, 404, web.NoSuchPath},
			{"POST /v1/chat/payer", nobody, 401, web.Unauthenticated},
			{"GET /", byIAM, 404, web.NoSuchPath},
			{"GET /a/link", byIAM, 404, web.NoSuchPath},
			{"POST /slack/interactions", byIAM, 404, web.NoSuchPath},
			{"GE T /v1/runs", byIAM, 400, web.InvalidRequest},
		} {
			begin, ends := time.Now(), 0
			out := s.follow(c.line, func(context.Context) { ends++ }, c.caller,
				append(slices.Clone(claimed), "accept", "text/event-stream")...)
			body := must(io.ReadAll(out.Body))
			require.NoError(t, out.Close())
			if c.status == http.StatusOK { // the stream tells what happens while it is open, and ends after its window
				require.Contains(t, string(body), "event: parked")
				require.Equal(t, 1, ends, "before the answer's end")
				require.Equal(t, 20*time.Second, time.Since(begin))
			}
			require.Equal(t, c.status, out.StatusCode, "%s: %s", c.line, body)
			if c.kind != "" {
				requireProblem(t, events.APIGatewayV2HTTPResponse{StatusCode: out.StatusCode, Headers: out.Headers, Body: string(body)}, c.kind)
			}
		}
		require.Equal(t, writes, s.writes())
	})
}

// A panic is an answer where none has begun, and otherwise the end of one.
func TestPanicInAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, begun := range []bool{false, true} {
			out, err := lambdafn.Stream(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if begun {
					require.NoError(t, http.NewResponseController(w).Flush())
					must(io.WriteString(w, "half"))
				}
				panic("canary")
			}), nil)(t.Context(), []byte(get))
			require.NoError(t, err)
			body := must(io.ReadAll(out.Body))
			require.Equal(t, map[bool]int{false: 500, true: 200}[begun], out.StatusCode)
			require.Equal(t, map[bool]string{false: "", true: "half"}[begun], string(body))
		}
	})
}
