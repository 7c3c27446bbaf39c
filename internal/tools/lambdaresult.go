package tools

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// result is what a function gives that knows us, by key: text, json, error, media ({name?, mediaType, data}, or a list
// of them), suspend (a run.Ticket) and patch ([{path, value?}]). What the others give is text.
type result map[string]json.RawMessage

// readFunctionResult reads a function's result: an object that has only the keys text, json, error, media, suspend and
// patch, or any other JSON, which becomes text. null is no text. An object of these keys that is impossible is an
// error.
func readFunctionResult(payload []byte) agent.ToolResultData {
	payload = bytes.TrimSpace(payload)
	if string(payload) == "null" {
		return agent.ToolResultData{}
	}
	r, ours, err := parseResult(payload)
	if !ours {
		return agent.ToolResultData{Content: policy.ResultText(payload)}
	}
	var d agent.ToolResultData
	if err == nil {
		d, err = r.data()
	}
	if err != nil {
		return agent.ToolResultData{Content: "the function ran, but its result cannot be read: " + err.Error(), IsError: true}
	}
	return d
}

// parseResult takes a result apart. It is ours where it is an object that has keys, and each is, letter by letter, one
// of ours. An error says that one is there twice: which of the two is meant would be a guess.
func parseResult(payload []byte) (r result, ours bool, err error) {
	r, err = members(payload, keys...)
	strange := func(key string) bool { return !slices.Contains(keys, key) }
	if len(r) == 0 || !json.Valid(payload) || slices.ContainsFunc(jsonx.SortedKeys(r), strange) {
		return nil, false, nil
	}
	for _, key := range keys {
		// What is null is spelled out as not being there, but for a text or JSON that is all there is.
		if string(r[key]) == "null" && (len(r) > 1 || key != "text" && key != "json") {
			delete(r, key)
		}
	}
	return r, true, err
}

var keys = []string{"error", "suspend", "media", "patch", "text", "json"}

func strict(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New("want an object of that form")
	}
	return nil
}

// data returns the result in the runtime's form. At most one of text, json, error and suspend is set; none only if
// there are media or a patch.
func (r result) data() (agent.ToolResultData, error) {
	said := 0
	for _, key := range []string{"text", "json", "error", "suspend"} {
		if r[key] != nil {
			said++
		}
	}
	if said > 1 || len(r) == 0 {
		return agent.ToolResultData{}, fmt.Errorf("got %d of text, json, error and suspend, want one", said)
	}
	text := cmp.Or(string(r["text"]), string(r["json"]), string(r["error"]))
	d := agent.ToolResultData{Content: policy.ResultText(json.RawMessage(text)), IsError: r["error"] != nil}
	var unread []error
	if list := r["media"]; list != nil {
		if list[0] != '[' {
			list = append(append([]byte{'['}, list...), ']')
		}
		if err := strict(list, &d.Media); err != nil {
			unread = append(unread, fmt.Errorf("media: %w", err))
		} else if slices.ContainsFunc(d.Media, func(m run.Media) bool {
			return m.MediaType == "" || m.Data == "" || m.Blob != ""
		}) {
			unread = append(unread, errors.New("media: want mediaType and data, in base64"))
		}
	}
	if r["suspend"] != nil {
		d.Suspend = &run.Ticket{}
		if err := strict(r["suspend"], d.Suspend); err != nil {
			unread = append(unread, fmt.Errorf("suspend: %w", err))
		}
	}
	if r["patch"] != nil {
		if err := strict(r["patch"], &d.Patch); err != nil {
			unread = append(unread, fmt.Errorf("patch: %w", err))
		}
	}
	return d, errors.Join(unread...)
}

// maxErrorText is the number of characters that are kept of a function's error.
const maxErrorText = 1000

// tooLarge is Lambda's name for the error of a function that ran and gave too much.
const tooLarge = "Function.ResponseSizeTooLarge"

// functionError returns a function's error: its own text as the tool's error, or that the outcome is unknown.
func functionError(payload []byte) (agent.ToolResultData, error) {
	// Of what Lambda says, the rest, such as where in its code, is nobody's here. What is no text is none.
	var f struct {
		Type    json.RawMessage `json:"errorType"`
		Message json.RawMessage `json:"errorMessage"`
	}
	_ = json.Unmarshal(payload, &f)
	kind, _ := jsonx.JSONString(f.Type)
	message, _ := jsonx.JSONString(f.Message)
	said := shorten(message)
	if kind := shorten(kind); kind != "" && said != "" {
		said = kind + ": " + said
	} else {
		said = cmp.Or(said, kind, "it gave no reason")
	}
	// Lambda says this, and not the function: its time was up, its process ended, or its result was none to hand on.
	byLambda := strings.HasPrefix(kind, "Sandbox.") || slices.Contains([]string{"Runtime.ExitError",
		"Runtime.OutOfMemory", "Runtime.MarshalError", "Extension.Crash", tooLarge}, kind) ||
		kind == "" && (strings.Contains(message, "Task timed out after") ||
			strings.Contains(message, "exited before completing request"))
	if byLambda {
		return agent.ToolResultData{}, &tool.LostError{Err: errors.New("the function ended without one: " + said)}
	}
	return agent.ToolResultData{Content: "the function failed: " + said, IsError: true}, nil
}

// shorten makes foreign text fit to be shown: valid UTF-8, on one line, without control characters, and short.
func shorten(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 || c == 0x2028 || c == 0x2029 {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.TrimSpace(text)
	if r := []rune(text); len(r) > maxErrorText {
		return string(r[:maxErrorText]) + " […]"
	}
	return text
}
