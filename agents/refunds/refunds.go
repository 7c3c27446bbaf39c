// Package refunds is the tools of the example agent of the same name: look an order up, and refund it. Its ledger is a folder of
// files; put a client of your own shop in its place.
package refunds

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/url"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/tool"
)

// Order is what a customer has bought.
type Order struct {
	ID       string      `json:"id"`
	Customer string      `json:"customer"`
	Item     string      `json:"item"`
	Paid     json.Number `json:"paid"` // in the shop's currency
}

// Refund is money given back.
type Refund struct {
	Order  string      `json:"order"`
	Amount json.Number `json:"amount"`
	Key    string      `json:"key"` // the call it was made by
}

// Ledger keeps refunds as files of a folder, one for the key of the call that made it: the same call pays once, however often it is
// made. Safe for concurrent use, by several processes too.
type Ledger struct{ Dir string }

//go:embed orders.json
var sample []byte

// Tools are orders.get and refunds.create over a ledger.
func Tools(l Ledger) ([]tool.Tool, error) {
	orders, err := readOrders()
	if err != nil {
		return nil, fmt.Errorf("make refund tools: %w", err)
	}
	get, err := tool.New("orders.get", "Returns an order: customer, item and what was paid.", agent.EffectRead,
		func(_ context.Context, _ tool.Call, in orderInput) (agent.ToolResultData, error) {
			o, err := orders.find(in.Order)
			if err != nil {
				return agent.ToolResultData{}, err
			}
			return tool.JSON(o)
		}, nil)
	if err != nil {
		return nil, fmt.Errorf("make refund tools: %w", err)
	}
	s := shop{orders, l}
	create, err := tool.New("refunds.create", "Refunds an order, in whole or in part.", agent.EffectNonIdempotent, s.refund,
		&tool.Options[refundInput]{Reconcile: s.reconcile})
	if err != nil {
		return nil, fmt.Errorf("make refund tools: %w", err)
	}
	return []tool.Tool{get, create}, nil
}

type orderInput struct {
	Order string `json:"order" jsonschema_description:"the order's number"`
}

type refundInput struct {
	Order  string      `json:"order" jsonschema_description:"the order's number"`
	Amount json.Number `json:"amount" jsonschema:"type=number,exclusiveMinimum=0" jsonschema_description:"how much, in the currency of the order"`
	Reason string      `json:"reason" jsonschema_description:"why, in one sentence"`
}

type book map[string]Order

func readOrders() (book, error) {
	var list []Order
	if err := json.Unmarshal(sample, &list); err != nil {
		return nil, fmt.Errorf("read orders.json: %w", err)
	}
	b := book{}
	for _, o := range list {
		b[o.ID] = o
	}
	return b, nil
}

func (b book) find(id string) (Order, error) {
	o, ok := b[id]
	if !ok {
		return Order{}, tool.Refusef("There is no order %s.", id)
	}
	return o, nil
}

type shop struct {
	orders book
	ledger Ledger
}

func (s shop) refund(_ context.Context, c tool.Call, in refundInput) (agent.ToolResultData, error) {
	o, err := s.orders.find(in.Order)
	if err != nil {
		return agent.ToolResultData{}, err
	}
	if more(in.Amount, o.Paid) {
		return agent.ToolResultData{}, tool.Refusef("Only %s was paid for order %s.", o.Paid, o.ID)
	}
	r := Refund{Order: o.ID, Amount: in.Amount, Key: c.Key}
	if err := s.ledger.add(r); err != nil {
		return agent.ToolResultData{}, err
	}
	return tool.JSON(r)
}

// more compares exactly, digit by digit: money is not a float.
func more(a, b json.Number) bool {
	x, okA := new(big.Rat).SetString(a.String())
	y, okB := new(big.Rat).SetString(b.String())
	return !okA || !okB || x.Cmp(y) > 0
}

// reconcile says what became of a call whose function died: the ledger knows.
func (s shop) reconcile(_ context.Context, c tool.Call, _ refundInput) (tool.Outcome, agent.ToolResultData, error) {
	r, found, err := s.ledger.find(c.Key)
	if err != nil || !found {
		return tool.OutcomeNotDone, agent.ToolResultData{}, err
	}
	result, err := tool.JSON(r)
	return tool.OutcomeDone, result, err
}

func (l Ledger) path(key string) string { return filepath.Join(l.Dir, url.PathEscape(key)+".json") }

// add writes a refund under its key, whole or not at all; one that is there already stays as it is.
func (l Ledger) add(r Refund) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("refund order %s: %w", r.Order, err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return fmt.Errorf("refund order %s: %w", r.Order, err)
	}
	f, err := os.CreateTemp(l.Dir, ".new-*")
	if err != nil {
		return fmt.Errorf("refund order %s: %w", r.Order, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Link(f.Name(), l.path(r.Key))
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return fmt.Errorf("refund order %s: %w", r.Order, err)
	}
	return nil
}

func (l Ledger) find(key string) (r Refund, found bool, err error) {
	data, err := os.ReadFile(l.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return Refund{}, false, nil
	}
	if err != nil {
		return Refund{}, false, fmt.Errorf("look for a refund: %w", err)
	}
	return r, true, json.Unmarshal(data, &r)
}
