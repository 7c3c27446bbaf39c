package bedrock

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/standins"
)

func user(b run.Block) run.Message { return run.Message{Role: run.RoleUser, Block: b} }
func assistant(b run.Block) run.Message {
	return run.Message{Role: run.RoleAssistant, Block: b}
}

func use(id, input string) run.Message {
	return assistant(run.ToolUse{ID: id, Name: "get", Input: json.RawMessage(input)})
}

func result(id, content string) run.Message {
	return user(run.ToolResult{ID: id, Content: content})
}

func say(text string) run.Message { return assistant(run.Text{Text: text}) }
func ask(text string) run.Message { return user(run.Text{Text: text}) }

func media(name, kind, data string) run.Message {
	return user(run.Media{Name: name, MediaType: kind, Data: data})
}

// sent is the body of the one request that comes of r, and the fake's check that Bedrock would take it.
func sent(t require.TestingT, m Model, r agent.Request) standins.BedrockRequest {
	server := standins.NewBedrock(standins.Reply{})
	defer server.Close()
	server.Wrote("m", standins.Reasoning("s", "hm"), standins.Redacted([]byte{255, 0}))
	m.Client = NewClient(server.Config())
	_, err := m.Generate(context.Background(), r)
	require.NoError(t, err)
	require.Len(t, server.Requests(), 1)
	return server.Requests()[0]
}

// A guardrail goes with every request.
func TestGuardrail(t *testing.T) {
	r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: []run.Message{ask("Hi")}}
	body := string(sent(t, Model{Guardrail: "gr1:7"}, r).Body)
	require.Contains(t, body, `"guardrailConfig":{"guardrailIdentifier":"gr1","guardrailVersion":"7"}`)
	require.NotContains(t, string(sent(t, Model{}, r).Body), "guardrail")
}

func TestRequest(t *testing.T) {
	temperature := 0.7
	r := agent.Request{
		Model:    agent.ModelSpec{ID: "arn:aws:bedrock:eu-1:1:inference-profile/eu.x:0", MaxTokens: 100, Temperature: &temperature},
		System:   "Be <brief>.",
		Messages: []run.Message{ask("Hi & bye")},
		Tools: []agent.ToolSpec{
			{Name: "orders.get", Description: "Look.", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"maximum":12345678901234567890.10},"a":{}}}`)},
			{Name: "ping", Description: " "},
		},
	}
	const messages = `"messages":[{"content":[{"text":"Hi & bye"}],"role":"user"}]`
	const inference = `"inferenceConfig":{"maxTokens":100,"temperature":0.7}`
	const get = `{"toolSpec":{"description":"Look.","inputSchema":{"json":{"type":"object","properties":{"z":{"maximum":12345678901234567890.10},"a":{}}}},"name":"orders_get"}}`
	const ping = `{"toolSpec":{"inputSchema":{"json":{"type":"object","properties":{}}},"name":"ping"}}`
	got := sent(t, Model{}, r)
	require.Equal(t, r.Model.ID, got.Model)
	require.Contains(t, got.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	require.Equal(t, `{`+inference+`,`+messages+`,"system":[{"text":"Be <brief>."}],"toolConfig":{"tools":[`+get+`,`+ping+`]}}`, string(got.Body))

	// Claude refuses schemas that combine others at the top, Nova all that a schema can have there but three.
	r.Tools = []agent.ToolSpec{{Name: "ping", Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false,"not":{}}`)}}
	require.Contains(t, string(sent(t, Model{}, r).Body), `"inputSchema":{"json":{"additionalProperties":false,"properties":{},"type":"object"}}`)
	r.Model.ID = "eu.amazon.nova-lite-v1:0"
	require.Contains(t, string(sent(t, Model{}, r).Body), `"inputSchema":{"json":{"properties":{},"type":"object"}}`)
}

// Converse cannot be asked for JSON of any form, so the system text asks; a used up quota is told to the model twice.
func TestNotices(t *testing.T) {
	r := agent.Request{Model: agent.ModelSpec{ID: "m"}, System: "Be brief.", Messages: []run.Message{ask("Hi")}, Output: agent.OutputFormat{JSON: true}, Exhausted: true}
	var got struct {
		System   []struct{ Text string }
		Messages []struct{ Content []struct{ Text string } }
	}
	require.NoError(t, json.Unmarshal(sent(t, Model{}, r).Body, &got))
	require.Len(t, got.System, 1)
	require.Regexp(t, `^Be brief\.\n\nYou have used up .*\n\nGive your final answer as one JSON value`, got.System[0].Text)
	require.Len(t, got.Messages, 1)
	require.Len(t, got.Messages[0].Content, 2)
	require.Regexp(t, `^You have used up `, got.Messages[0].Content[1].Text)
}

func TestSmallestRequest(t *testing.T) {
	r := agent.Request{Model: agent.ModelSpec{ID: "m"}, System: " \n", Messages: []run.Message{ask("a")}}
	require.Equal(t, `{"messages":[{"content":[{"text":"a"}],"role":"user"}]}`, string(sent(t, Model{}, r).Body))
	zero := 0.0
	r.Model.Temperature = &zero
	require.Equal(t, `{"inferenceConfig":{"temperature":0},"messages":[{"content":[{"text":"a"}],"role":"user"}]}`, string(sent(t, Model{}, r).Body))
	r.Model = agent.ModelSpec{ID: "m", MaxTokens: 1 << 40}
	require.Equal(t, `{"inferenceConfig":{"maxTokens":2147483647},"messages":[{"content":[{"text":"a"}],"role":"user"}]}`, string(sent(t, Model{}, r).Body))
}

// A conversation with calls in it is refused without tools: its own are listed.
func TestWithdrawnTools(t *testing.T) {
	r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: []run.Message{
		ask("q"), use("a", `{}`), assistant(run.ToolUse{ID: "b", Name: "put_it"}), use("c", `{}`), ask("sum up"),
	}}
	var body struct{ ToolConfig json.RawMessage }
	require.NoError(t, json.Unmarshal(sent(t, Model{}, r).Body, &body))
	tool := func(name string) string {
		return `{"toolSpec":{"name":"` + name + `","description":"` + modelretry.Withdrawn + `","inputSchema":{"json":{"type":"object","properties":{}}}}}`
	}
	require.JSONEq(t, `{"tools":[`+tool("get")+`,`+tool("put_it")+`]}`, string(body.ToolConfig))
}

func TestConversation(t *testing.T) {
	const callA = `{"toolUse":{"toolUseId":"a","name":"get","input":{"x":1.0}}}`
	const callB = `{"toolUse":{"toolUseId":"b","name":"get","input":{}}}`
	text := func(s string) string { return fmt.Sprintf(`{"text":%q}`, s) }
	resultOf := func(id, s string) string {
		return fmt.Sprintf(`{"toolResult":{"toolUseId":%q,"content":[{"text":%q}]}}`, id, s)
	}
	the := func(role string, content ...string) string {
		return fmt.Sprintf(`{"role":%q,"content":[%s]}`, role, strings.Join(content, ","))
	}
	asked := the("user", text("q"))
	image := `{"image":{"format":"png","source":{"bytes":"AAAA"}}}`
	visual := func(kind, format string) string {
		return fmt.Sprintf(`{%q:{"format":%q,"source":{"bytes":"AAAA"}}}`, kind, format)
	}
	document := func(name, format string) string {
		return fmt.Sprintf(`{"document":{"name":%q,"format":%q,"source":{"bytes":"BBBB"}}}`, name, format)
	}
	own := signed("m", "hm", "s")
	foreign := own
	foreign.Provider = "openai"
	sentOwn := `{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}}`
	r, a := the("user", text("r")), the("assistant", text("a"))
	tests := []struct {
		name     string
		messages []run.Message
		want     []string
	}{
		{"a turn with text and two calls", []run.Message{ask("q"), say("wait"), use("a", `{"x":1.0}`), use("b", ``), result("a", "1"), result("b", "2"), say("done")},
			[]string{asked, the("assistant", text("wait"), callA, callB), the("user", resultOf("a", "1"), resultOf("b", "2")), the("assistant", text("done"))}},
		{"results in another order, behind a text", []run.Message{ask("q"), use("a", `{"x":1.0}`), use("b", `{}`), ask("r"), result("b", "2"), result("a", "1"), ask("s")},
			[]string{asked, the("assistant", callA, callB), the("user", resultOf("a", "1"), resultOf("b", "2"), text("r"), text("s"))}},
		{"a result is missing", []run.Message{ask("q"), use("b", `{}`), say("on")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", modelretry.NoResponse)), the("assistant", text("on"))}},
		{"the last result wins", []run.Message{ask("q"), use("b", `{}`), result("b", "1"), say("x"), result("b", "2"), say("y")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", "2")), the("assistant", text("x"), text("y"))}},
		{"a blank result", []run.Message{ask("q"), use("b", `{}`), result("b", " ")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", modelretry.NoOutput))}},
		{"a shortened result", []run.Message{ask("q"), use("b", `{}`), user(run.ToolResult{ID: "b", Content: "start…", Blob: "d"})},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", "start…"))}},
		{"the beginning was evicted", []run.Message{use("b", `{}`), result("b", "1")},
			[]string{the("user", text(modelretry.Opening)), the("assistant", callB), the("user", resultOf("b", "1"))}},
		{"blank texts", []run.Message{ask(""), ask("q"), say(" \n"), ask("r"), say(""), use("b", ``), ask("\t"), result("b", "1"), say("")},
			[]string{the("user", text("q"), text("r")), the("assistant", callB), the("user", resultOf("b", "1"))}},
		{"input that the core made a string of", []run.Message{ask("q"), use("b", `"{\"x\": <1"`)},
			[]string{asked, the("assistant", `{"toolUse":{"toolUseId":"b","name":"get","input":{"malformed_input":"{\"x\": <1"}}}`), the("user", resultOf("b", modelretry.NoResponse))}},
		{"media of a tool", []run.Message{ask("q"), use("b", `{}`), result("b", "1"), media("p.png", "image/png", "AAAA"), ask("r")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", "1"), image, text("r"))}},
		{"a document without a word", []run.Message{media("x.pdf", "application/pdf", "BBBB")},
			[]string{the("user", document("x-pdf", "pdf"), text(attached))}},
		{"names and types", []run.Message{
			ask("q"), media("Q1 [draft] (2)/été.TXT", "text/plain; charset=utf-8", "BBBB"), media("x", "text/csv", "BBBB"), media("X", "text/markdown", "BBBB"),
			media("x", "application/json", "BBBB"), media("x (2)", "text/html", "BBBB"),
		}, []string{the("user", text("q"), document("Q1 [draft] (2)-t-TXT", "txt"), document("x", "csv"), document("X (2)", "md"),
			document("x (3)", "txt"), document("x (2) (2)", "html"))}},
		{"more names and types", []run.Message{
			ask("q"), media("../ ", "application/msword", "BBBB"), media("", "application/vnd.ms-excel", "BBBB"), media("a", "text/x-python", "BBBB"),
			media("b", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "BBBB"), media("c", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "BBBB"),
		}, []string{the("user", text("q"), document("document", "doc"), document("document (2)", "xls"), document("a", "txt"), document("b", "docx"), document("c", "xlsx"))}},
		{"pictures and films", []run.Message{
			ask("q"), media("", "image/jpeg", "AAAA"), media("", "image/jpg", "AAAA"), media("", "image/gif", "AAAA"), media("", "IMAGE/WebP", "AAAA"), media("", "video/mp4", "AAAA"), media("", "video/3gpp", "AAAA"),
		}, []string{the("user", text("q"), visual("image", "jpeg"), visual("image", "jpeg"), visual("image", "gif"), visual("image", "webp"), visual("video", "mp4"), visual("video", "three_gp"))}},
		{"a document of a tool", []run.Message{ask("q"), use("b", `{}`), result("b", "1"), media("x", "application/pdf", "BBBB")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", "1"), document("x", "pdf"), text(attached))}},
		// Reasoning that Bedrock would refuse stays at home, and what is left is a conversation all the same.
		{"one's own reasoning", []run.Message{ask("q"), thinks(own), say("a"), ask("r")},
			[]string{asked, the("assistant", sentOwn, text("a")), r}},
		{"reasoning: redacted", []run.Message{ask("q"), thinks(run.Reasoning{Redacted: []byte{255, 0}, Provider: "bedrock", Model: "m"}), say("a"), ask("r")},
			[]string{asked, the("assistant", `{"reasoningContent":{"redactedContent":"/wA="}}`, text("a")), r}},
		{"reasoning: another model's", []run.Message{ask("q"), thinks(signed("m2", "hm", "s")), say("a"), ask("r")}, []string{asked, a, r}},
		{"reasoning: another provider's", []run.Message{ask("q"), thinks(foreign), say("a"), ask("r")}, []string{asked, a, r}},
		{"reasoning: unsigned", []run.Message{ask("q"), thinks(signed("m", "hm", "")), say("a"), ask("r")}, []string{asked, a, r}},
		{"reasoning: alone", []run.Message{ask("q"), thinks(own), ask("r")}, []string{the("user", text("q"), text("r"))}},
		{"reasoning: with a blank", []run.Message{ask("q"), thinks(own), say(" "), ask("r")}, []string{the("user", text("q"), text("r"))}},
		{"reasoning: behind a text", []run.Message{ask("q"), say("a"), thinks(own), ask("r")}, []string{asked, a, r}},
		{"reasoning: before the user speaks again", []run.Message{ask("q"), say("a"), thinks(own), ask("r"), say("b"), ask("s")},
			[]string{asked, a, r, the("assistant", text("b")), the("user", text("s"))}},
		{"reasoning: behind a call", []run.Message{ask("q"), use("b", ``), thinks(own), result("b", "1")},
			[]string{asked, the("assistant", callB), the("user", resultOf("b", "1"))}},
		{"reasoning: at the end", []run.Message{ask("q"), thinks(own)}, []string{asked}},
		{"reasoning: at the beginning", []run.Message{thinks(own), say("a"), ask("q")},
			[]string{the("user", text(modelretry.Opening)), the("assistant", sentOwn, text("a")), asked}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var body struct{ Messages json.RawMessage }
			r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: tt.messages}
			require.NoError(t, json.Unmarshal(sent(t, Model{}, r).Body, &body))
			require.JSONEq(t, "["+strings.Join(tt.want, ",")+"]", string(body.Messages))
		})
	}
}

func TestToolErrors(t *testing.T) {
	messages := []run.Message{ask("q"), use("a", `{}`), user(run.ToolResult{ID: "a", Content: "x", IsError: true}), use("b", `{}`), use("c", `{}`), result("c", "y")}
	for model, want := range map[string][]types.ToolResultStatus{
		"eu.anthropic.claude-x": {types.ToolResultStatusError, types.ToolResultStatusError, ""},
		"amazon.nova-pro":       {types.ToolResultStatusError, types.ToolResultStatusError, ""},
		"mistral.large":         {"", "", ""},
	} {
		out, err := conversation(model, messages)
		require.NoError(t, err)
		var got []types.ToolResultStatus
		for _, m := range out {
			for _, b := range m.Content {
				if r, ok := b.(*types.ContentBlockMemberToolResult); ok {
					got = append(got, r.Value.Status)
				}
			}
		}
		require.Equal(t, want, got, model)
	}
}

func TestRequestsThatCannotBeMade(t *testing.T) {
	of := func(messages ...run.Message) agent.Request { return agent.Request{Messages: messages} }
	tests := []struct {
		name string
		r    agent.Request
		want string
	}{
		{"nothing", of(), "conversation is empty"},
		{"nothing but blanks", of(ask(" "), say("")), "conversation is empty"},
		{"media in a blob", of(user(run.Media{MediaType: "image/png", Blob: "canary"})), "message 0 is media that is the model's own or was not resolved"},
		{"media of the model", of(ask("a"), assistant(run.Media{MediaType: "image/png", Data: "canary"})), "message 1 is media that is the model's own or was not resolved"},
		{"result in a blob", of(use("a", "{}"), user(run.ToolResult{ID: "a", Blob: "canary"})), "message 1 is a tool_result that was not resolved"},
		{"result without a call", of(result("canary", ""), use("canary", "{}")), "message 0 is a tool_result without its tool_use"},
		{"id twice", of(use("canary", "{}"), use("canary", "{}")), "message 1 is a tool_use whose id is taken"},
		{"input that is no JSON", of(use("canary", "canary")), "message 0 is a tool_use whose input is not JSON"},
		{"an output schema that is no object", agent.Request{Messages: []run.Message{ask("a")}, Output: agent.OutputFormat{JSON: true, Schema: json.RawMessage(`["canary"]`)}}, "output has a schema that is not a JSON object"},
		{"options that are no object", agent.Request{Model: agent.ModelSpec{Options: json.RawMessage(`["canary"]`)}, Messages: []run.Message{ask("a")}}, "model's options are not a JSON object"},
		{"no block", of(run.Message{Role: run.RoleUser}), "message 0 has no block"},
		{"schema that is no JSON", agent.Request{Messages: []run.Message{ask("a")}, Tools: []agent.ToolSpec{{Name: "a"}, {Name: "b", Schema: json.RawMessage(`canary`)}}}, "tool 1 has a schema that is not a JSON object"},
		{"schema that is no object", agent.Request{Messages: []run.Message{ask("a")}, Tools: []agent.ToolSpec{{Name: "a", Schema: json.RawMessage(`true`)}}}, "tool 0 has a schema that is not a JSON object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, server := against(t, Model{})
			tt.r.Model.ID = "m"
			_, err := m.Generate(context.Background(), tt.r)
			requireClass(t, agent.ModelInvalid, err)
			require.Equal(t, tt.want, failureOf(t, err).Message)
			require.Empty(t, server.Requests())
		})
	}
}

// conversations draws messages in which results follow their calls, sometimes late, twice or never, with blank texts
// and media.
func conversations() *rapid.Generator[[]run.Message] {
	return rapid.Custom(func(t *rapid.T) []run.Message {
		var messages []run.Message
		calls, documents := 0, 0
		for range rapid.IntRange(0, 20).Draw(t, "length") {
			word := fmt.Sprintf("%d.", len(messages))
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				messages = append(messages, ask("u"+word))
			case 1:
				messages = append(messages, say("a"+word))
			case 2:
				calls++
				messages = append(messages, use(fmt.Sprint(calls), rapid.SampledFrom([]string{"", "{}", `{"x":1}`, `"x"`}).Draw(t, "input")))
			case 3:
				if calls > 0 {
					id := rapid.IntRange(1, calls).Draw(t, "call")
					messages = append(messages, result(fmt.Sprint(id), rapid.SampledFrom([]string{"", "r" + word}).Draw(t, "content")))
				}
			case 7:
				thought := run.Reasoning{Text: word, Signature: "s", Provider: "bedrock", Model: rapid.SampledFrom([]string{"m", "m", "m2"}).Draw(t, "model")}
				if rapid.IntRange(0, 4).Draw(t, "unsigned") == 0 {
					thought.Signature = ""
				}
				messages = append(messages, thinks(thought))
			case 4:
				messages = append(messages, rapid.SampledFrom([]run.Message{ask(""), say(" ")}).Draw(t, "blank"))
			case 5:
				messages = append(messages, media("p", "image/png", "AAAA"))
			case 6:
				if documents++; documents > maxDocuments {
					continue
				}
				messages = append(messages, media(rapid.StringN(0, 4, -1).Draw(t, "name"), "application/pdf", "AAAA"))
			}
		}
		return messages
	})
}

// Whatever the conversation: on the wire it breaks no rule that the fake knows (alternation, pairing, blanks, names),
// and no text, call or medium is lost or moved before another of its side.
func TestPropertyConversation(t *testing.T) {
	server := standins.NewBedrockFunc(func(standins.BedrockRequest) standins.Turn { return standins.Reply{} })
	defer server.Close()
	m := Model{Client: NewClient(server.Config())}
	rapid.Check(t, func(t *rapid.T) {
		in := conversations().Draw(t, "messages")
		for _, m := range in {
			if b, ok := m.Block.(run.Reasoning); ok && b.Model == "m" {
				server.Wrote("m", standins.Reasoning(b.Signature, b.Text))
			}
		}
		r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: in}
		_, err := m.Generate(context.Background(), r) // the fake refuses what breaks a rule
		if wantText(in) == "" {
			require.ErrorContains(t, err, "conversation is empty")
			return
		}
		require.NoError(t, err)
		p, err := newPrompt(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, wantText(in), gotText(p.Messages))
	})
}

// wantText is what is said, shown and called, in order.
func wantText(in []run.Message) string {
	var s strings.Builder
	for _, m := range in {
		switch b := m.Block.(type) {
		case run.Text:
			s.WriteString(strings.TrimSpace(b.Text))
		case run.Media:
			s.WriteString("#")
		case run.ToolUse:
			s.WriteString("!")
		}
	}
	return s.String()
}

func gotText(out []types.Message) string {
	var s strings.Builder
	for _, m := range out {
		for _, b := range m.Content {
			switch b := b.(type) {
			case *types.ContentBlockMemberText:
				if b.Value != modelretry.Opening && b.Value != attached {
					s.WriteString(b.Value)
				}
			case *types.ContentBlockMemberImage, *types.ContentBlockMemberDocument:
				s.WriteString("#")
			case *types.ContentBlockMemberToolUse:
				s.WriteString("!")
			}
		}
	}
	return s.String()
}

// Files that Bedrock does not take are left out, and the model is told.
func TestMediaThatAreLeftOut(t *testing.T) {
	large := func(bytes int) string { return base64.StdEncoding.EncodeToString(make([]byte, bytes)) }
	doc, film := media("d", "application/pdf", "AAAA"), media("f", "video/mp4", large(maxMedia/2))
	old := media("old", "application/pdf", "AAAA")
	for want, messages := range map[string][]run.Message{
		"p (image/png) is left out: its data is not base64":                                   {media("p", "image/png", "!")},
		"p () is left out: it has no media type":                                              {media("p", "", "AAAA")},
		"p (application/zip) is left out: the type is none that Bedrock takes":                {media("p", "application/zip", "AAAA")},
		"p (text/csv) is left out: a document for Bedrock has at most 4718592 bytes":          {media("p", "text/csv", large(maxDocument+1))},
		"old (application/pdf) is left out: a request to Bedrock has at most 5 documents":     {old, doc, doc, doc, doc, doc},
		"f (video/mp4) is left out: a request to Bedrock has at most 26214400 bytes of media": {film, film, media("p", "image/png", "AAAA")},
		"g (video/mp4) is left out: a request to Bedrock has at most 26214400 bytes of media": {old, media("g", "video/mp4", large(maxMedia+1))},
	} {
		got, err := conversation("m", append([]run.Message{ask("q")}, messages...))
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Contains(t, got[0].Content, &types.ContentBlockMemberText{Value: "[" + want + "]"})
	}
	got, err := conversation("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", []run.Message{ask("q"), media("f", "video/mp4", "AAAA")})
	require.NoError(t, err)
	require.Contains(t, got[0].Content, &types.ContentBlockMemberText{Value: "[f (video/mp4) is left out: the model takes no video]"})
}

// Claude refuses a request for one picture too many or too large, and each later one with it. The newest stay.
func TestPicturesThatClaudeRefuses(t *testing.T) {
	var long bytes.Buffer
	require.NoError(t, png.Encode(&long, image.NewGray(image.Rect(0, 0, 1, maxPictureSide+1))))
	messages := []run.Message{ask("q"), media("old", "image/png", "AAAA"), media("tall", "image/png", base64.StdEncoding.EncodeToString(long.Bytes())),
		media("large", "image/png", base64.StdEncoding.EncodeToString(make([]byte, maxPicture+1)))}
	for range maxPictures - 3 {
		messages = append(messages, media("p", "image/png", "AAAA"))
	}
	messages = append(messages, media("d", "application/pdf", "AAAA"))
	got, err := conversation("us.anthropic.claude-x", messages)
	require.NoError(t, err)
	left := ""
	for _, b := range got[0].Content[1:4] {
		left += b.(*types.ContentBlockMemberText).Value
	}
	require.Equal(t, "[old (image/png) is left out: a request to Claude has at most 20 pictures and documents][tall (image/png) is left out: "+
		"a picture for Claude has at most 8000 pixels a side][large (image/png) is left out: a picture for Claude has at most 3932160 bytes]", left)
	require.IsType(t, &types.ContentBlockMemberImage{}, got[0].Content[4])
	got, err = conversation("amazon.nova-pro", messages)
	require.NoError(t, err)
	require.IsType(t, &types.ContentBlockMemberImage{}, got[0].Content[1])
}

// Llama's and Mistral's models take nothing beside a tool's result.
func TestUserBesideAResult(t *testing.T) {
	for model, want := range map[string]int{"us.meta.llama4-maverick-17b-instruct-v1:0": 5, "mistral.mistral-large-2407-v1:0": 5, "amazon.nova-pro": 3} {
		got, err := conversation(model, []run.Message{ask("p"), use("b", `{}`), result("b", "1"), ask("q")})
		require.NoError(t, err)
		require.Len(t, got, want, model)
		require.Equal(t, &types.ContentBlockMemberText{Value: "q"}, got[want-1].Content[len(got[want-1].Content)-1])
	}
}

// How large a PDF may be is the model's to say.
func TestLargePDF(t *testing.T) {
	large := base64.StdEncoding.EncodeToString(make([]byte, maxDocument+1))
	for _, kind := range []string{"application/pdf", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"} {
		r := agent.Request{Model: agent.ModelSpec{ID: "m"}, Messages: []run.Message{ask("a"), media("x", kind, large)}}
		require.Empty(t, sent(t, Model{}, r).Refused)
	}
}

// The service counts the very request that it would be sent: system text, conversation and tools.
func TestCountTokens(t *testing.T) {
	m, server := against(t, Model{}, blocks(standins.Text("a")))
	r := request()
	r.System, r.Tools = "Count.", []agent.ToolSpec{{Name: "get", Description: "Gets."}}
	n, err := m.CountTokens(context.Background(), r)
	require.NoError(t, err)
	_, err = m.Generate(context.Background(), r)
	require.NoError(t, err, "counting uses up no reply")
	asked := server.Requests()
	require.Len(t, asked, 2)
	require.True(t, asked[0].Count)
	require.JSONEq(t, string(asked[1].Body), string(asked[0].Body))
	require.EqualValues(t, standins.CountTokens(asked[0].Body), n)

	r.Tools = nil
	less, err := m.CountTokens(context.Background(), r)
	require.NoError(t, err)
	require.Less(t, less, n)
}

func TestCountTokensFails(t *testing.T) {
	m, server := against(t, Model{})
	r := request()
	r.Model.ID = "uncounted.m"
	_, err := m.CountTokens(context.Background(), r)
	failure := failureOf(t, err)
	require.Equal(t, agent.ModelInvalid, failure.Class)
	require.Equal(t, "uncounted.m", failure.Model)

	elsewhere := request()
	elsewhere.Model.BaseURL = "http://127.0.0.1:1"
	_, err = m.CountTokens(context.Background(), elsewhere)
	requireClass(t, agent.ModelInvalid, err)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = m.CountTokens(ctx, request())
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, server.Requests(), 1)

	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>canary")) }))
	defer page.Close()
	c := server.Config()
	c.BaseEndpoint = &page.URL
	_, err = Model{Client: NewClient(c)}.CountTokens(context.Background(), request())
	requireClass(t, agent.ModelInvalid, err)
	require.Equal(t, "reply is not the JSON of a message", failureOf(t, err).Message)
}
