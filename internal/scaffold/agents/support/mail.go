// Package support is the tool of the agent of the same name: it sends a mail. Here a mail is a file of a folder. Put
// the client of your mail service in its place.
package support

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/pkg/agent"
)

// mail is the arguments of mail.send. The tool's JSON Schema comes from this type.
type mail struct {
	To      string `json:"to" jsonschema_description:"the customer's address"`
	Subject string `json:"subject"`
	Text    string `json:"text" jsonschema_description:"plain text"`
}

// outbox is the folder with a file for each mail, named by the call that sent it.
type outbox string

// SendMail is the tool mail.send over a folder. To send a mail twice is to send two, so the effect is non-idempotent: a
// person approves each call, and after a crash Countersign asks wasSent before it calls again.
func SendMail(folder string) (agent.Tool, error) {
	o := outbox(folder)
	return agent.NewTool("mail.send", "Sends a mail to a customer.", agent.EffectNonIdempotent, o.send,
		&agent.ToolOptions[mail]{Reconcile: o.wasSent, Describe: describe})
}

// describe returns what the approver reads first.
func describe(m mail) string { return fmt.Sprintf("Send %s the mail %q.", m.To, m.Subject) }

// file returns where a call's mail is. Call.Key is equal on every attempt of the same call.
func (o outbox) file(c agent.Call) string {
	return filepath.Join(string(o), url.PathEscape(c.Key)+".json")
}

func (o outbox) send(_ context.Context, c agent.Call, m mail) (agent.Result, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = os.MkdirAll(string(o), 0o700)
	}
	if err == nil {
		err = os.WriteFile(o.file(c)+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(o.file(c)+".new", o.file(c)) // whole or not at all
	}
	if err != nil { // it may have been sent: wasSent is asked. Any other error says that it was not.
		return agent.Result{}, &agent.LostError{Err: fmt.Errorf("send mail: %w", err)}
	}
	return agent.TextResult("Sent, as " + o.file(c)), nil
}

// wasSent says what became of a call whose process died.
func (o outbox) wasSent(_ context.Context, c agent.Call, _ mail) (agent.Outcome, agent.Result, error) {
	switch _, err := os.Stat(o.file(c)); {
	case err == nil:
		return agent.OutcomeDone, agent.TextResult("Sent, as " + o.file(c)), nil
	case errors.Is(err, fs.ErrNotExist):
		return agent.OutcomeNotDone, agent.Result{}, nil
	default:
		return agent.OutcomeUnknown, agent.Result{}, fmt.Errorf("look for mail: %w", err)
	}
}
