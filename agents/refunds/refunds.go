// Package refunds is the tools of the example agent of the same name: look an order up, refund it, and take a refund
// back. Orders are a file of this folder, and refunds a ledger of files; put a client of your own shop in their place.
package refunds

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/pkg/agent"
)

// Order is what a customer has bought.
type Order struct {
	ID       string      `json:"id"`
	Customer string      `json:"customer"`
	Item     string      `json:"item"`
	Paid     json.Number `json:"paid"` // in the shop's currency
}

// Standing is an order as it is now.
type Standing struct {
	Order
	Refunded json.Number `json:"refunded"` // of what was paid, by refunds that nobody has taken back
}

// Refund is money given back.
type Refund struct {
	Order  string      `json:"order"`
	Amount json.Number `json:"amount"`
	Key    string      `json:"key"` // the call it was made by
}

// Cancellation is a refund taken back.
type Cancellation struct {
	Refund string `json:"refund"` // the key of the call that made it
	Key    string `json:"key"`    // the call that took it back
}

//go:embed orders.json
var sample []byte

// Tools are orders.get, refunds.create and refunds.cancel over a ledger.
func Tools(l ledger.Ledger) ([]agent.Tool, error) {
	s := shop{ledger: l}
	if err := json.Unmarshal(sample, &s.orders); err != nil {
		return nil, fmt.Errorf("make refund tools: read orders.json: %w", err)
	}
	get, noGet := agent.NewTool("orders.get",
		"Returns an order: customer, item, what was paid and what of it was refunded.",
		agent.EffectRead, s.order, nil)
	create, noCreate := agent.NewTool("refunds.create", "Refunds an order, in whole or in part.",
		agent.EffectNonIdempotent, s.refund,
		&agent.ToolOptions[refundInput]{Reconcile: s.refunded, Describe: s.describe})
	cancel, noCancel := agent.NewTool("refunds.cancel", "Takes a refund back, by the key it was made under.",
		agent.EffectNonIdempotent, s.cancel,
		&agent.ToolOptions[cancelInput]{Reconcile: s.cancelled})
	if err := errors.Join(noGet, noCreate, noCancel); err != nil {
		return nil, fmt.Errorf("make refund tools: %w", err)
	}
	return []agent.Tool{get, create, cancel}, nil
}

type orderInput struct {
	Order string `json:"order" jsonschema_description:"the order's number"`
}

type refundInput struct {
	Order  string      `json:"order" jsonschema_description:"the order's number"`
	Amount json.Number `json:"amount" jsonschema:"exclusiveMinimum=0,description=in the currency of the order"`
	Reason string      `json:"reason" jsonschema_description:"why, in one sentence"`
}

type cancelInput struct {
	Refund string `json:"refund" jsonschema_description:"the refund's key"`
}

type shop struct {
	orders []Order
	ledger ledger.Ledger
}

func (s shop) find(id string) (Order, error) {
	i := slices.IndexFunc(s.orders, func(o Order) bool { return o.ID == id })
	if i < 0 {
		return Order{}, agent.Refuse("There is no order %s.", id)
	}
	return s.orders[i], nil
}

func (s shop) order(_ context.Context, _ agent.Call, in orderInput) (agent.Result, error) {
	o, err := s.find(in.Order)
	if err != nil {
		return agent.Result{}, err
	}
	back, err := s.back(o.ID)
	if err != nil {
		return agent.Result{}, err
	}
	digits, _ := back.FloatPrec() // as many behind the point as it has
	return agent.JSONResult(Standing{o, json.Number(back.FloatString(digits))})
}

// describe is what whoever approves a refund reads first.
func (s shop) describe(in refundInput) string {
	o, err := s.find(in.Order)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("Refund %s of the %s that were paid for %s (order %s).", in.Amount, o.Paid, o.Item, o.ID)
}

// back is what was refunded of an order and not taken back since.
func (s shop) back(order string) (*big.Rat, error) {
	refunds, cancelled := map[string]Refund{}, map[string]bool{}
	err := s.ledger.Each(func(entry json.RawMessage) error {
		var kept struct {
			Refund
			Of string `json:"refund"`
		}
		if err := json.Unmarshal(entry, &kept); err != nil {
			return err
		}
		if kept.Of != "" {
			cancelled[kept.Of] = true
		} else if kept.Order == order {
			refunds[kept.Key] = kept.Refund
		}
		return nil
	})
	total := new(big.Rat)
	for key, r := range refunds {
		if amount, ok := new(big.Rat).SetString(r.Amount.String()); ok && !cancelled[key] {
			total.Add(total, amount)
		}
	}
	return total, err
}

// refund holds a refund to what was paid, and not to what is left of it, so that the commands of the documents can be
// repeated. Whoever approves is told what was refunded before. A shop holds it to the rest.
func (s shop) refund(_ context.Context, c agent.Call, in refundInput) (agent.Result, error) {
	o, err := s.find(in.Order)
	if err != nil {
		return agent.Result{}, err
	}
	want, okWant := new(big.Rat).SetString(in.Amount.String()) // exactly, digit by digit: money is not a float
	paid, okPaid := new(big.Rat).SetString(o.Paid.String())
	if !okWant || !okPaid || want.Cmp(paid) > 0 {
		return agent.Result{}, agent.Refuse("Only %s was paid for order %s.", o.Paid, o.ID)
	}
	r := Refund{Order: o.ID, Amount: in.Amount, Key: c.Key}
	if _, err := s.ledger.Keep(c.Key, r); err != nil { // it may be kept: refunded knows
		return agent.Result{}, &agent.LostError{Err: err}
	}
	return agent.JSONResult(r)
}

// refunded says what became of a call whose function died: the ledger knows.
func (s shop) refunded(_ context.Context, c agent.Call, _ refundInput) (agent.Outcome, agent.Result, error) {
	var r Refund
	found, err := s.ledger.Find(c.Key, &r)
	if err != nil || !found {
		return agent.OutcomeNotDone, agent.Result{}, err
	}
	result, err := agent.JSONResult(r)
	return agent.OutcomeDone, result, err
}

// cancel takes a refund back once, whoever asks: what is kept is kept under the refund, with the call that did it.
func (s shop) cancel(_ context.Context, c agent.Call, in cancelInput) (agent.Result, error) {
	var r Refund
	found, err := s.ledger.Find(in.Refund, &r)
	if err != nil {
		return agent.Result{}, err
	}
	if !found || r.Key != in.Refund { // a cancellation is no refund
		return agent.Result{}, agent.Refuse("There is no refund %s.", in.Refund)
	}
	taken := Cancellation{Refund: in.Refund, Key: c.Key}
	if kept, err := s.ledger.Keep(cancelKey(in.Refund), taken); err != nil {
		return agent.Result{}, &agent.LostError{Err: err}
	} else if kept {
		return agent.JSONResult(taken)
	}
	if _, err := s.ledger.Find(cancelKey(in.Refund), &taken); err != nil {
		return agent.Result{}, err
	}
	if taken.Key != c.Key {
		return agent.Result{}, agent.Refuse("Refund %s has been taken back already.", in.Refund)
	}
	return agent.JSONResult(taken)
}

func (s shop) cancelled(_ context.Context, c agent.Call, in cancelInput) (agent.Outcome, agent.Result, error) {
	var taken Cancellation
	found, err := s.ledger.Find(cancelKey(in.Refund), &taken)
	if err != nil || !found || taken.Key != c.Key {
		return agent.OutcomeNotDone, agent.Result{}, err
	}
	result, err := agent.JSONResult(taken)
	return agent.OutcomeDone, result, err
}

func cancelKey(refund string) string { return refund + " cancelled" }
