package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/countersign/countersign/internal/people/show"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// The exit codes of docs/cli.md.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitWaiting     = 3
	exitInterrupted = 130
)

// exitCode is an error for a command that has printed its result and exits with a code.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// usageError is wrong usage or a bad file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// reportError prints an error once and returns the exit code.
func (p *program) reportError(ctx context.Context, err error) int {
	var code exitCode
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case isInterrupted(ctx, err):
		return exitInterrupted
	}
	p.logLine("countersign: %s", lines(err.Error()))
	if p.json {
		doc := failureResult{&api.Problem{Type: "failed", Title: "the command failed", Detail: err.Error()}}
		var refused *api.Problem
		var usage *usageError
		switch {
		case errors.As(err, &refused):
			doc.Error = refused
		case errors.As(err, &usage):
			doc.Error = &api.Problem{Type: "usage", Title: "wrong usage or a bad file", Detail: err.Error()}
		}
		if err := p.writeJSON(doc); err != nil {
			p.logLine("countersign: %s", lines(err.Error()))
		}
	}
	return exitCodeOf(err)
}

// failureResult is the JSON document of a failed command.
type failureResult struct {
	Error *api.Problem `json:"error"`
}

// exitCodeOf returns the exit code of an error. Mistakes of the person who typed the command are usage errors.
func exitCodeOf(err error) int {
	var u *usageError
	var p *api.Problem
	if errors.As(err, &u) {
		return exitUsage
	}
	if errors.As(err, &p) {
		switch p.Type {
		case api.InvalidRequest, api.UnknownAgent, api.UnknownBlob, api.NotSupported, api.EditRefused, api.GrantRefused,
			api.AnswerRefused, api.RunNotFound, api.CallNotFound,
			api.ApprovalNotFound, api.GrantNotFound:
			return exitUsage
		}
	}
	return exitFailed
}

// runExit returns the exit of a command that followed a run; nil for 0.
func runExit(r api.Run) error {
	switch {
	case r.Status != run.RunDone:
		return exitCode(exitWaiting)
	case r.Reason == run.ReasonError, r.Reason == run.ReasonCancelled:
		return exitCode(exitFailed)
	default:
		return nil
	}
}

// writeJSON writes the one JSON document of a command, with terminal control characters escaped.
func (p *program) writeJSON(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		_, err = p.stdout.Write(show.JSON(text.Bytes()))
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
