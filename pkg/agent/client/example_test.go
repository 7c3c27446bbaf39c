package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/client"
)

type refund struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// script is what the model says in the example: a call, and its last word.
const script = `{"calls": [{"id": "c1", "name": "refund", "input": {"order": "17", "cents": 1200}}]}
{"text": "Order 17 is refunded."}
`

// A server of one's own runs an agent in its process, without HTTP: it starts a run, shows what waits for a person,
// passes on their decision, and watches the run to its end.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "countersign")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	model := filepath.Join(dir, "model.jsonl")
	check(os.WriteFile(model, []byte(script), 0o600))

	pay := func(_ context.Context, _ agent.Call, in refund) (agent.Result, error) {
		fmt.Println("pays", in.Cents, "for order", in.Order)
		return agent.TextResult("done"), nil
	}
	tool, err := agent.NewTool("refund", "Pays money back.", agent.EffectNonIdempotent, pay, nil)
	check(err)
	registry, err := agent.NewRegistry(tool)
	check(err)
	check(registry.AddFS(fstest.MapFS{"shop/agent.yaml": {Data: fmt.Appendf(nil,
		"name: shop\nsystem: You refund orders.\nmodel: {provider: script, file: %q}\ntools: [{name: refund}]\npermission: {approvers: [\"group:support\"]}\n", model)}}))

	engine, err := client.Open(filepath.Join(dir, "state"), registry, nil)
	check(err)
	defer func() { check(engine.Close()) }()

	customer := engine.Client("user:cleo")
	started, err := customer.Start(ctx, client.Start{Agent: "shop", Message: json.RawMessage(`"Order 17 arrived broken."`)})
	check(err)
	run, err := engine.Wait(ctx, started.ID)
	check(err)

	request := run.Waiting[0].Approval
	_, err = customer.Decide(ctx, request, client.Verdict{Action: client.Approve})
	var refused *client.Problem
	fmt.Println("cleo may not decide:", errors.As(err, &refused))

	support := engine.Client("user:ana,group:support")
	shown, err := support.Approval(ctx, request)
	check(err)
	fmt.Println("ana approves", shown.Tools[0], string(shown.Args))
	_, err = support.Decide(ctx, request, client.Verdict{Action: client.Approve, Digest: shown.Digest})
	check(err)

	var seen []string // a page would show each event as it comes
	check(customer.Follow(ctx, started.ID, "", func(e client.Event) error {
		if slices.Contains([]string{"call_suspended", "decided", "call_finished", "finished"}, e.Type) {
			seen = append(seen, e.Type)
		}
		return nil
	}))
	fmt.Println(strings.Join(seen, ", "))
	run, err = customer.Run(ctx, started.ID)
	check(err)
	fmt.Println(run.Status, string(run.Output))
	// Output:
	// cleo may not decide: true
	// ana approves refund {"order":"17","cents":1200}
	// pays 1200 for order 17
	// call_suspended, decided, call_finished, finished
	// done "Order 17 is refunded."
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// token is a credential that is sent with each request, such as the one in HOME/token of `countersign dev`.
type token string

func (t token) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// A client of a deployment, or of `countersign dev`.
func ExampleNew() {
	c := client.New("http://127.0.0.1:8420", &http.Client{Transport: token(os.Getenv("TOKEN"))})
	defer c.Close()
	pending, err := c.Approvals(context.Background(), "", "", 0)
	if err != nil {
		return
	}
	for _, a := range pending.Items {
		fmt.Println(a.ID, a.Sentence, string(a.Args))
	}
}
