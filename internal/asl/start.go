package asl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// StartResult names an execution that was started.
type StartResult struct {
	ExecutionARN string
	StartDate    time.Time
}

// Start starts an execution and returns when that is durable. An empty name is replaced by a new id, an empty input by
// {}. Starting again with the same name and input while the execution runs changes nothing and gives the same result.
// Errors: InvalidName, InvalidExecutionInput, ExecutionAlreadyExists (the name is taken by another input or is closed),
// ExecutionLimitExceeded, ErrClosed, and the Store's, after which the execution may or may not be on record.
func (e *Engine) Start(ctx context.Context, name string, input []byte) (StartResult, error) {
	if name == "" {
		name = e.IDs()
	}
	if err := checkName(name); err != nil {
		return StartResult{}, err
	}
	input, err := checkInput(input)
	if err != nil {
		return StartResult{}, err
	}
	for {
		x, fresh, err := e.reserve(name, input)
		if err != nil {
			return StartResult{}, err
		}
		if fresh {
			return e.begin(ctx, x)
		}
		if err := x.begun.wait(ctx); err != nil {
			return StartResult{}, err
		}
		if e.known(x) {
			return x.started(), nil
		}
	}
}

func (x *execution) started() StartResult {
	return StartResult{ExecutionARN: x.arn, StartDate: x.record().StartDate}
}

// known tells whether x is on record.
func (e *Engine) known(x *execution) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return x.saved
}

// reserve finds the execution of that name and input, or makes a fresh one, which the caller must begin.
func (e *Engine) reserve(name string, input []byte) (x *execution, fresh bool, err error) {
	if e.ctx.Err() != nil {
		return nil, false, ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.executions[name]; x != nil {
		if x.rec.Status != Running || !bytes.Equal(x.rec.Input, input) {
			return nil, false, refuse(ExecutionAlreadyExists, "execution %s already exists", x.arn)
		}
		return x, false, nil
	}
	if e.running >= e.MaxRunning {
		return nil, false, refuse(ExecutionLimitExceeded, "%d executions are open", e.running)
	}
	x = e.newExecution(Record{
		Name: name, Status: Running, Input: input, StartDate: e.Clock.Now(), State: e.Definition.startAt,
	})
	e.executions[name] = x
	e.running++
	return x, true, nil
}

func (e *Engine) newExecution(r Record) *execution {
	return &execution{engine: e, arn: e.prefix + r.Name, rec: r, begun: &latch{clock: e.Clock}, ended: &latch{clock: e.Clock}}
}

// begin writes a fresh execution and sets it going.
func (e *Engine) begin(ctx context.Context, x *execution) (StartResult, error) {
	defer x.begun.release()
	x.count(HistoryEvent{Type: "ExecutionStarted"}, MaxEvents)
	err := e.Store.Save(ctx, x.record())
	if err == nil {
		err = e.launch(x)
	}
	if err != nil {
		e.forget(x)
		return StartResult{}, fmt.Errorf("start execution %s: %w", x.arn, err)
	}
	return x.started(), nil
}

// forget makes an execution that did not come to run unknown again.
func (e *Engine) forget(x *execution) {
	e.mu.Lock()
	delete(e.executions, x.rec.Name)
	e.running--
	e.mu.Unlock()
}

// launch sets an execution going where its record says, and lets it be found.
func (e *Engine) launch(x *execution) error {
	var err error
	if x.input, err = decodeValue(x.rec.Input); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	x.at, x.in = x.rec.State, x.input
	if len(x.rec.StateInput) > 0 {
		if x.in, err = decodeValue(x.rec.StateInput); err != nil {
			return fmt.Errorf("state input: %w", err)
		}
	}
	x.ctx, x.cancel = context.WithCancelCause(e.ctx)
	x.ctx, x.release = e.deadline(x)
	e.mu.Lock()
	x.saved, x.active = true, true
	e.executions[x.rec.Name] = x
	e.mu.Unlock()
	e.spawn(x.run)
	return nil
}

// maxLife is how long an execution may take, waits included: a year.
const maxLife = 365 * 24 * time.Hour

// deadline is the execution's context with the definition's timeout, a year at most, which counts from the start or the last redrive.
func (e *Engine) deadline(x *execution) (context.Context, context.CancelFunc) {
	life := maxLife
	if limit := time.Duration(e.Definition.timeout) * time.Second; limit > 0 {
		life = min(life, limit)
	}
	from := x.rec.StartDate
	if x.rec.RedriveCount > 0 {
		from = x.rec.RedriveDate
	}
	return e.Clock.WithTimeout(x.ctx, from.Add(life).Sub(e.Clock.Now()))
}

// maxName is the longest name of an execution, in characters.
const maxName = 80

func checkName(name string) error {
	bad := func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("<>{}[]?*\"#%\\^|~`$&,;:/", r)
	}
	if n := utf8.RuneCountInString(name); n > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return refuse(InvalidName, "the name must be 1 to 80 characters, without white space, brackets and special characters")
	}
	return nil
}

// checkInput is the input without white space.
func checkInput(input []byte) (json.RawMessage, error) {
	if len(input) == 0 {
		return json.RawMessage("{}"), nil
	}
	if len(input) > MaxData {
		return nil, refuse(InvalidExecutionInput, "the input is %d bytes, more than %d", len(input), MaxData)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, input); err != nil {
		return nil, refuse(InvalidExecutionInput, "the input is not JSON: %v", err)
	}
	return b.Bytes(), nil
}
