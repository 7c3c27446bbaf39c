package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/modelretry"
)

// problem is what a server says went wrong. Its words are looked at and never passed on. failed is the call that Groq
// read and refused.
type problem struct{ message, kind, code, param, failed string }

// problemIn finds the problem in a body: under error, as an object or a string, or at the top, in Gemini's answers of a
// list. What cannot be read is no problem.
func problemIn(body []byte) problem {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var top struct {
		Error json.RawMessage `json:"error"`
	}
	raw := json.RawMessage(body)
	if json.Unmarshal(body, &top) == nil && len(top.Error) > 0 && string(top.Error) != "null" {
		raw = top.Error
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return problem{message: scalarText(raw)}
	}
	var upstream struct{ Raw json.RawMessage }
	_ = json.Unmarshal(fields["metadata"], &upstream) // OpenRouter's, whose own message says nothing
	message := scalarText(fields["message"]) + scalarText(fields["detail"]) + scalarText(upstream.Raw)
	return problem{message: message, kind: scalarText(fields["type"]),
		code: scalarText(fields["code"]), param: scalarText(fields["param"]),
		failed: scalarText(fields["failed_generation"])}
}

// scalarText returns the content of a string or the digits of a number, else "".
func scalarText(raw json.RawMessage) string {
	if s, ok := jsonx.JSONString(raw); ok {
		return s
	}
	var n json.Number
	_ = json.Unmarshal(raw, &n) // of what is no number nothing
	return n.String()
}

// knownCodes are the error codes and types that decide where there is no status, in a stream, and that may be shown.
var knownCodes = map[string]agent.ModelErrorClass{
	"context_length_exceeded":   agent.ModelContextOverflow,
	"exceed_context_size_error": agent.ModelContextOverflow, // llama.cpp
	"tokens_limit_reached":      agent.ModelContextOverflow, // GitHub Models
	// status 429, yet waiting does not help: OpenAI's, and Kimi's
	"insufficient_quota":           agent.ModelAuth,
	"billing_not_active":           agent.ModelAuth,
	"exceeded_current_quota_error": agent.ModelAuth,

	"rate_limit_exceeded":   agent.ModelThrottled,
	"rate_limit_error":      agent.ModelThrottled,
	"invalid_api_key":       agent.ModelAuth,
	"authentication_error":  agent.ModelAuth,
	"permission_error":      agent.ModelAuth,
	"model_not_found":       agent.ModelUnavailable,
	"invalid_request_error": agent.ModelInvalid,
	"BadRequestError":       agent.ModelInvalid, // vLLM
	"content_filter":        agent.ModelInvalid,
	"timeout":               agent.ModelTimeout,
	"overloaded_error":      agent.ModelUnavailable,
	"service_unavailable":   agent.ModelUnavailable,
	"server_error":          agent.ModelServer,
	"internal_server_error": agent.ModelServer,
	"api_error":             agent.ModelServer,
	"tool_use_failed":       agent.ModelServer, // Groq, status 400: what the model wrote is no call; the next may be
	"output_parse_failed":   agent.ModelServer, // likewise
}

// decisiveCodes say more than a response's status.
var decisiveCodes = []string{"context_length_exceeded", "exceed_context_size_error", "tokens_limit_reached",
	"insufficient_quota", "billing_not_active", "exceeded_current_quota_error", "tool_use_failed", "output_parse_failed"}

// overflowPhrases are how servers without a code say that the request does not fit the context.
var overflowPhrases = []string{
	"context length", "context window", "context size", "maximum context", "context_length", "max_model_len",
	"prompt is too long", "input is too long", "too many tokens", "input length exceeds",
	"input token count", "maximum prompt length", "exceeded model token limit", // Gemini, xAI, Kimi
	"exceed context limit", "range of input length", "prompt exceeds max length", "max_new_tokens` must be", // Claude,
	// DashScope, Z.ai, TGI; then vLLM, SGLang, SiliconFlow, Copilot
	"maximum model length", "maximum allowed length", "max_seq_len", "prompt token count", tooLarge,
}

// tooLarge is how OpenAI and Groq say that a request alone exceeds what a minute allows, which no wait changes.
const tooLarge = "request too large"

// unpaid are phrases of accounts without credit: Z.ai and xAI have no code of their own for it.
var unpaid = []string{"insufficient balance", "used all available credits"}

// What a server's code and parameter may be to be shown: names, and nothing that could be content or a key.
var (
	codeName  = regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)*$`)
	paramName = regexp.MustCompile(`^[a-z][A-Za-z0-9_.\[\]]*$`)
)

const maxName = 64

// description names the error's code or type and its parameter; "" if the server named nothing.
func (p problem) description() string {
	code, param := "", ""
	for _, word := range []string{p.code, p.kind} {
		if code == "" && (knownCodes[word] != "" || len(word) <= maxName && codeName.MatchString(word)) {
			code = word
		}
	}
	if len(p.param) <= maxName && paramName.MatchString(p.param) {
		param = "param " + p.param
	}
	return strings.Join(slices.DeleteFunc([]string{code, param}, func(s string) bool { return s == "" }), ", ")
}

// class decides by decisive code, status, known code and phrase, in this order; a status of 0 is none.
func (p problem) class(status int) agent.ModelErrorClass {
	code := p.code
	if knownCodes[code] == "" { // else it counts more than the kind
		code = p.kind
	}
	class := cmp.Or(knownCodes[code], agent.ModelServer)
	switch {
	case slices.Contains(decisiveCodes, code):
		return class
	case status != 0:
		class = modelretry.StatusClass(status)
	}
	message := strings.ToLower(p.message)
	says := func(phrase string) bool { return strings.Contains(message, phrase) }
	switch {
	case class == agent.ModelThrottled && slices.ContainsFunc(unpaid, says):
		return agent.ModelAuth
	case class == agent.ModelThrottled && says(tooLarge),
		(class == agent.ModelInvalid || status == 0) && slices.ContainsFunc(overflowPhrases, says):
		return agent.ModelContextOverflow
	}
	return class
}

// parseRefusal parses an unsuccessful response: the reason, or the call that the server could not read. If the body
// cannot be read, the status decides.
func parseRefusal(ctx context.Context, r agent.Request, resp *http.Response) (agent.Reply, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil && ctx.Err() != nil {
		return agent.Reply{}, ioFailure(ctx, err)
	}
	p := problemIn(body)
	if resp.StatusCode == http.StatusInternalServerError || p.failed != "" {
		if c, ok := quotedCall(r, p); ok {
			return agent.Reply{Model: r.Model.ID, Calls: []agent.ReplyCall{c}, StopReason: stopRepaired}, nil
		}
	}
	after := modelretry.ReadRetryAfter(resp.Header)
	refused := modelretry.Refusal{Status: resp.StatusCode, Code: p.description(), After: after,
		Media: modelretry.RefusedMedia(p.message)}
	return agent.Reply{}, refused.Failure(p.class(resp.StatusCode))
}

// streamFailure is an error that came as data. A number that is a status decides as one. A model that is not there is
// asked no more.
func streamFailure(p problem) error {
	status, err := strconv.Atoi(p.code)
	if err != nil || status < 400 || status > 599 {
		status = 0
	}
	refusal := modelretry.Refusal{Code: p.description(), Media: modelretry.RefusedMedia(p.message)}
	failure := refusal.Failure(p.class(status))
	failure.Lasting = failure.Lasting || status == http.StatusNotFound || p.code == "model_not_found"
	return failure
}

// modelError makes a model error; Generate adds the model. Messages have the words of this package only.
func modelError(class agent.ModelErrorClass, message string) *agent.ModelError {
	return &agent.ModelError{Class: class, Message: message}
}

// ioFailure says why a request or the reading of its reply broke off.
func ioFailure(ctx context.Context, err error) error {
	if ended := modelretry.ContextFailure(ctx); ended != nil {
		return ended
	}
	if isTooLarge(err) {
		return modelError(agent.ModelInvalid, fmt.Sprintf("reply is larger than %d MiB", MaxResponse>>20))
	}
	if failure := modelretry.NetworkFailure(err); failure != nil {
		return failure
	}
	return modelError(agent.ModelConnection, "connection failed")
}

func isTooLarge(err error) bool {
	return errors.As(err, new(*http.MaxBytesError))
}
