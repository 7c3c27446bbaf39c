package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/client"
)

// A run that waits is carried on by the next Open of its folder, which one program has at a time.
func TestOpenGoesOnWithARunThatWaits(t *testing.T) {
	dir, paid := t.TempDir(), 0
	model := filepath.Join(dir, "model.jsonl")
	require.NoError(t, os.WriteFile(model, []byte(script), 0o600))
	tool, err := agent.NewTool("refund", "Pays money back.", agent.EffectNonIdempotent,
		func(context.Context, agent.Call, refund) (agent.Result, error) {
			paid++
			return agent.TextResult("done"), nil
		}, nil)
	require.NoError(t, err)
	registry, err := agent.NewRegistry(tool)
	require.NoError(t, err)
	file := "name: shop\nsystem: You refund orders.\nmodel: {provider: script, file: " + model + "}\ntools: [{name: refund}]\n"
	require.NoError(t, registry.AddFS(fstest.MapFS{"shop/agent.yaml": {Data: []byte(file)}}))

	engine, err := client.Open(filepath.Join(dir, "state"), registry, nil)
	require.NoError(t, err)
	_, err = client.Open(filepath.Join(dir, "state"), registry, nil)
	require.ErrorIs(t, err, client.ErrInUse)
	started, err := engine.Client("user:cleo").Start(t.Context(), client.Start{Agent: "shop", Message: json.RawMessage(`"Refund 17."`)})
	require.NoError(t, err)
	_, err = engine.Wait(t.Context(), started.ID)
	require.NoError(t, err)
	require.NoError(t, engine.Close())

	engine, err = client.Open(filepath.Join(dir, "state"), registry, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	operator := engine.Client("user:ana,group:operators")
	pending, err := operator.Approvals(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, pending.Items, 1)
	require.Zero(t, paid)
	_, err = operator.Decide(t.Context(), pending.Items[0].ID, client.Verdict{Action: client.Approve})
	require.NoError(t, err)
	run, err := engine.Wait(t.Context(), started.ID)
	require.NoError(t, err)
	require.Equal(t, agent.RunDone, run.Status)
	require.Equal(t, 1, paid)
}

// An agent's OpenAI-compatible server compares its tools with what was said: the model is offered those that fit.
func TestVectorsOfAServerChooseTheTools(t *testing.T) {
	var mu sync.Mutex
	var offered []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var asked struct {
			Input []string
			Tools []struct{ Function struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path != "/v1/embeddings" {
			for _, tool := range asked.Tools {
				offered = append(offered, tool.Function.Name)
			}
			_, _ = io.WriteString(w, `{"choices": [{"message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]}`)
			return
		}
		var data []string
		for i, text := range asked.Input { // one direction for money, another for everything else
			vector := map[bool]string{true: "[1, 0]", false: "[0, 1]"}[strings.Contains(text, "money")]
			data = append(data, fmt.Sprintf(`{"index": %d, "embedding": %s}`, i, vector))
		}
		_, _ = io.WriteString(w, `{"data": [`+strings.Join(data, ",")+`]}`)
	}))
	defer server.Close()
	tool := func(name, does string) agent.Tool {
		made, err := agent.NewTool(name, does, agent.EffectRead, func(context.Context, agent.Call, refund) (agent.Result, error) {
			return agent.TextResult("done"), nil
		}, nil)
		require.NoError(t, err)
		return made
	}
	registry, err := agent.NewRegistry(tool("weather", "Tells the weather."), tool("refund", "Pays money back."), tool("mail", "Sends mail."))
	require.NoError(t, err)
	file := fmt.Sprintf("name: shop\nsystem: You help.\nmodel: {provider: openai, id: m, baseURL: %[1]s/v1}\n"+
		"tools: [{name: weather}, {name: refund}, {name: mail}]\n"+
		"prefilter: {topK: 1, embeddings: {provider: openai, id: v, baseURL: %[1]s/v1}}\n", server.URL)
	require.NoError(t, registry.AddFS(fstest.MapFS{"shop/agent.yaml": {Data: []byte(file)}}))
	engine, err := client.Open(t.TempDir(), registry, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	started, err := engine.Client("user:cleo").Start(t.Context(), client.Start{Agent: "shop", Message: json.RawMessage(`"My money!"`)})
	require.NoError(t, err)
	run, err := engine.Wait(t.Context(), started.ID)
	require.NoError(t, err)
	require.Equal(t, agent.RunDone, run.Status)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"refund"}, offered)
}

// Wait goes on while another agent's run works on a call, and ends where that run waits for people.
func TestWaitForADelegatedRun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"boss":  `{"calls": [{"id": "b1", "name": "ask_clerk", "input": {"message": "Refund 17."}}]}` + "\n" + `{"text": "It is done."}` + "\n",
		"clerk": `{"calls": [{"id": "l1", "name": "look", "input": {"order": "17", "cents": 1}}]}` + "\n" + script,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	slow, err := agent.NewTool("look", "Looks.", agent.EffectRead, func(context.Context, agent.Call, refund) (agent.Result, error) {
		time.Sleep(300 * time.Millisecond)
		return agent.TextResult("seen"), nil
	}, nil)
	require.NoError(t, err)
	pay, err := agent.NewTool("refund", "Pays.", agent.EffectNonIdempotent, func(context.Context, agent.Call, refund) (agent.Result, error) {
		time.Sleep(300 * time.Millisecond)
		return agent.TextResult("done"), nil
	}, nil)
	require.NoError(t, err)
	registry, err := agent.NewRegistry(slow, pay)
	require.NoError(t, err)
	head := func(name, tools string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("name: " + name + "\nsystem: s\nmodel: {provider: script, file: " + filepath.Join(dir, name) + "}\ntools: " + tools + "\n")}
	}
	require.NoError(t, registry.AddFS(fstest.MapFS{
		"boss/agent.yaml":  head("boss", "[{name: ask.clerk, kind: agent, description: Asks., agent: clerk}]"),
		"clerk/agent.yaml": head("clerk", "[{name: look}, {name: refund}]"),
	}))
	engine, err := client.Open(filepath.Join(dir, "state"), registry, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	ana := engine.Client("user:ana,group:operators")
	run, err := ana.Start(t.Context(), client.Start{Agent: "boss", Message: json.RawMessage(`"Refund 17."`)})
	require.NoError(t, err)
	waits, err := engine.Wait(t.Context(), run.ID)
	require.NoError(t, err)
	require.Equal(t, agent.RunWaiting, waits.Status)
	pending, err := ana.Approvals(t.Context(), "", "", 0)
	require.NoError(t, err)
	require.Len(t, pending.Items, 1, "it waits for people")
	_, err = ana.Decide(t.Context(), pending.Items[0].ID, client.Verdict{Action: client.Approve})
	require.NoError(t, err)
	done, err := engine.Wait(t.Context(), run.ID)
	require.NoError(t, err)
	require.Equal(t, agent.RunDone, done.Status)
	require.JSONEq(t, `"It is done."`, string(done.Output))
}
