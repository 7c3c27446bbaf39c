package httptool

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/egress"
)

// The bounds of what is read of an answer, in bytes.
const (
	maxBody    = 10 << 20
	maxText    = 256 << 10 // of a result, where the tool says nothing else
	maxTrouble = 4 << 10   // of what comes with a status that is no success
)

// errGateway is the error of an answer that says that somebody on the way has no answer.
var errGateway = errors.New("a gateway had no answer of the server")

// readAnswer reads a server's answer. It returns an error if the answer cannot be read.
func (t *request) readAnswer(resp *http.Response, secrets *tool.Disclosure) (agent.ToolResultData, error) {
	switch code := resp.StatusCode; {
	case t.spec.Effect == run.EffectNonIdempotent && (code == http.StatusBadGateway || code == http.StatusGatewayTimeout):
		return agent.ToolResultData{}, fmt.Errorf("%w: status %s", errGateway, statusText(resp))
	case code < 200 || code > 299:
		text, err := readText(resp, maxTrouble, secrets)
		return agent.ToolResultData{Content: strings.TrimSuffix("status "+statusText(resp)+"\n"+text, "\n"), IsError: true}, err
	case !isText(resp.Header.Get("Content-Type")):
		return readMedia(resp, secrets)
	}
	limit := int64(maxText)
	if t.spec.MaxResult > 0 {
		limit = min(t.spec.MaxResult, maxBody/2)
	}
	text, err := readText(resp, limit, secrets)
	if text == "" {
		text = "status " + statusText(resp) + ", and nothing more"
	}
	return agent.ToolResultData{Content: text}, err
}

// statusText returns a status such as "404 Not Found", in the standard words and not the server's.
func statusText(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// isText reports whether a body of that type is text in UTF-8 or in a subset of it.
func isText(contentType string) bool {
	kind, params, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		return true
	}
	if err != nil {
		return false
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
	default:
		return false
	}
	_, sub, _ := strings.Cut(kind, "/")
	switch {
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(sub, "+json"), strings.HasSuffix(sub, "+xml") && !strings.HasPrefix(kind, "image/"):
		return true
	default:
		switch sub {
		case "json", "xml", "yaml", "x-yaml", "javascript", "x-ndjson", "x-www-form-urlencoded", "problem+json":
			return strings.HasPrefix(kind, "application/")
		}
		return false
	}
}

// readText reads at most so many bytes of text. Longer text is cut and gets a notice.
func readText(resp *http.Response, most int64, secrets *tool.Disclosure) (string, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) <= most {
		return strings.ToValidUTF8(secrets.Redact(string(data)), "\uFFFD"), nil
	}
	text := secrets.RedactCut(string(data[:most]))
	return strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\uFFFD") + fmt.Sprintf("\n[the answer is longer than %d bytes and is cut here]", most), nil
}

// readMedia reads a body that is no text, to show it to the model as it is.
func readMedia(resp *http.Response, secrets *tool.Disclosure) (agent.ToolResultData, error) {
	data, err := io.ReadAll(resp.Body)
	kind, params, bad := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind = mime.FormatMediaType(kind, params); bad != nil || !run.ValidMediaType(kind) {
		kind = "application/octet-stream"
	}
	left := func(why string) (agent.ToolResultData, error) {
		return agent.ToolResultData{Content: fmt.Sprintf("status %s; the answer is %s and is left out: %s", statusText(resp), kind, why)}, nil
	}
	var large *egress.TooLargeError
	switch {
	case errors.As(err, &large):
		return left(fmt.Sprintf("it is larger than %d bytes", large.Most))
	case err != nil:
		return agent.ToolResultData{}, err
	case len(data) == 0:
		return agent.ToolResultData{Content: "status " + statusText(resp) + ", and nothing more"}, nil
	case secrets.Redact(string(data)) != string(data), secrets.Redact(kind) != kind:
		kind = "something"
		return left("it has a secret in it")
	}
	return agent.ToolResultData{
		Content: fmt.Sprintf("status %s; the answer is %s of %d bytes", statusText(resp), kind, len(data)),
		Media:   []run.Media{{MediaType: kind, Data: base64.StdEncoding.EncodeToString(data)}},
	}, nil
}
