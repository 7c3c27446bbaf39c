package slack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/show"
)

// hooksBase is where Slack takes answers to clicks.
const hooksBase = "https://hooks.slack.com"

// The answers to a person who clicked. They hold nothing of a request but who decided it.
const (
	textStranger      = "Nothing was decided: Countersign does not know you. Ask whoever runs it to put your Slack member id into its directory of people."
	textForbidden     = "Nothing was decided: you are not one of those who may decide about this request."
	textExpired       = "Nothing was decided: the request has expired. It was not carried out."
	textFinished      = "Nothing was decided: the run has gone on or ended without it. Nobody has to decide any more."
	textWrongKind     = "Nothing was decided: this request cannot be decided like that. See its page."
	textUnknown       = "Nothing was decided: there is no such request."
	textChanged       = "Nothing was decided: the request was changed since this message showed it. See its page, or the newest message about it."
	textPolicyChanged = "Nothing was decided: the policy that applies has changed since this was asked. Whoever may decide by now is asked again."
	textUncertain     = "It is not certain whether this was recorded. Click again: it is recorded once, however often you do."
)

// recordedText is the answer to a decision that was recorded.
func recordedText(a approval.Approval, did approval.Action) string {
	word := "Your approval is recorded. "
	if did == approval.Deny {
		word = "Your denial is recorded. "
	}
	if a.Status == approval.Pending {
		return word + "More people have to approve before it is carried out."
	}
	return word + show.OutcomeText(a)
}

// ephemeral is an answer that only the person who clicked sees.
type ephemeral struct {
	ResponseType    string  `json:"response_type"`
	ReplaceOriginal bool    `json:"replace_original"`
	Text            string  `json:"text"`
	Blocks          []block `json:"blocks"`
}

// errAnswer is all that is said of an answer that was not delivered.
var errAnswer = errors.New("the answer could not be delivered")

// postAnswer posts the result of a click to the address that Slack sent, if it is an address of Slack.
func (in *Interactions) postAnswer(ctx context.Context, address, text string) error {
	if !in.isSlackHook(address) {
		return errAnswer
	}
	body, err := json.Marshal(ephemeral{ResponseType: "ephemeral", Text: "Countersign", Blocks: []block{section(text)}})
	if err != nil {
		return errAnswer
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errAnswer
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("User-Agent", "countersign")
	resp, err := newHTTPClient(in.HTTP, answerTimeout).Do(r)
	if err != nil {
		return errAnswer
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errAnswer
	}
	return nil
}

// isSlackHook reports whether an address is at the host of Slack's hooks.
func (in *Interactions) isSlackHook(address string) bool {
	want, err := url.Parse(cmp.Or(in.Hooks, hooksBase))
	if err != nil {
		return false
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == want.Scheme && u.Host == want.Host && u.User == nil && u.Opaque == "" && u.Fragment == ""
}
