// Package dynamo keeps a store.Table in DynamoDB: one table, one index, one request for each call of the port.
//
// An item is stored under the names of package store: PK, SK, Body, Index and IndexSort, and its attributes beside them as strings
// and numbers. A body of more than 2 KB is stored deflated if that makes it smaller (see body.go); what may be written is
// decided by store.CheckOps on the item as it is, not as it is stored.
//
// What a failure means is kept exact (store.Table, protocol.md rule 2):
//
//   - No write is resent. A conditional put that was resent after a lost answer would fail on the writer's own item and say that
//     nothing was written. So a put or update whose outcome is not known says so, and the caller reads again.
//   - A transaction whose outcome is not known is sent once more under the same client request token, which DynamoDB executes once.
//   - Reads are resent, three attempts, when the connection or the service fails.
//   - Throttling and transaction conflicts are never resent here but reported: store.Resend does it, on our clock, with one budget.
package dynamo

import (
	"context"
	"fmt"
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/store"
)

// IndexName is the table's one secondary index: partition key Index, sort key IndexSort, everything projected.
const IndexName = "lists"

// Options of New. The zero value is usable.
type Options struct {
	// Token draws the client request token of a transaction: random, unique, 1 to 36 characters. Nil: a transaction whose outcome is
	// not known is not sent again.
	Token func() string
}

// Table is a store.Table in DynamoDB. Make one with New. Safe for concurrent use.
type Table struct {
	client *Client
	name   string
	token  func() string
}

var _ store.Table = (*Table)(nil)

// New makes a Table of the DynamoDB table of that name, which exists: its keys are PK and SK, and its index is IndexName.
func New(client *Client, table string, opts Options) *Table {
	return &Table{client: client, name: table, token: opts.Token}
}

// Get implements store.Table by one consistent GetItem.
func (t *Table) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := ctx.Err(); err != nil {
		return store.Item{}, false, err
	}
	if err := store.CheckKey(k); err != nil {
		return store.Item{}, false, err
	}
	var out struct{ Item attributes }
	if err := t.client.read(ctx, "GetItem", input{TableName: t.name, Key: encodeKey(k), ConsistentRead: aws.Bool(true)}, &out); err != nil {
		return store.Item{}, false, fmt.Errorf("get item %q %q: %w", k.PK, k.SK, explain(err, 1))
	}
	if len(out.Item) == 0 {
		return store.Item{}, false, nil
	}
	it, err := decode(out.Item)
	return it, err == nil, err
}

// Query implements store.Table by one Query, consistent unless it is of the index; by none where the range is plainly empty. A page may
// be empty and yet have a cursor.
func (t *Table) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	s, err := spanOf(r)
	if err != nil || s.empty() {
		return store.Page{}, err
	}
	in := input{
		TableName: t.name, ConsistentRead: aws.Bool(!r.Index), ScanIndexForward: aws.Bool(!r.Reverse), ExclusiveStartKey: s.startKey(),
		Limit: min(max(r.Limit, 0), math.MaxInt32),
	}
	if r.Index {
		in.IndexName = IndexName
	}
	var x expression
	in.KeyConditionExpression = x.keyCondition(r)
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = x.names, x.values
	var out struct {
		Items            []attributes
		LastEvaluatedKey attributes
	}
	if err := t.client.read(ctx, "Query", in, &out); err != nil {
		return store.Page{}, fmt.Errorf("query %q: %w", r.PK, explain(err, 1))
	}
	return page(r, out.Items, out.LastEvaluatedKey)
}

// Write implements store.Table: one Put or Update by PutItem or UpdateItem, one Check by a consistent GetItem, several operations
// by TransactWriteItems.
func (t *Table) Write(ctx context.Context, ops ...store.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	if len(ops) > 1 {
		return t.transact(ctx, ops)
	}
	switch op := ops[0]; op.Kind {
	case store.Put:
		return t.put(ctx, op)
	case store.Update:
		return t.update(ctx, op)
	default:
		return t.check(ctx, op)
	}
}

func (t *Table) put(ctx context.Context, op store.Op) error {
	p, err := t.putOf(op)
	if err != nil {
		return err
	}
	if err := t.client.once(ctx, "PutItem", p, nil); err != nil {
		return fmt.Errorf("put item %q %q: %w", op.Item.PK, op.Item.SK, explain(err, 1))
	}
	return nil
}

func (t *Table) update(ctx context.Context, op store.Op) error {
	if err := t.client.once(ctx, "UpdateItem", t.updateOf(op), nil); err != nil {
		return fmt.Errorf("update item %q %q: %w", op.Item.PK, op.Item.SK, explain(err, 1))
	}
	return nil
}

// check looks instead of asking for a transaction of one ConditionCheck: both tell what was true at one moment, and a look costs a
// quarter and conflicts with nobody.
func (t *Table) check(ctx context.Context, op store.Op) error {
	it, found, err := t.Get(ctx, op.Item.Key)
	if err != nil {
		return err
	}
	if !store.Holds(op.If, it, found) {
		return &store.ConditionError{Failed: []int{0}}
	}
	return nil
}

// transact sends a transaction, and once more under its token if nobody knows what became of it. When the second answer says that
// nothing was done this time, the first may still have been, so that the outcome stays unknown.
func (t *Table) transact(ctx context.Context, ops []store.Op) error {
	in, err := t.transaction(ops)
	if err != nil {
		return err
	}
	err = t.client.once(ctx, "TransactWriteItems", in, nil)
	if uncertain(err) && t.token != nil && ctx.Err() == nil {
		err = t.client.once(ctx, "TransactWriteItems", in, nil)
		if transient(err) {
			return fmt.Errorf("write %d items, first %q %q: outcome unknown: %v", len(ops), ops[0].Item.PK, ops[0].Item.SK, err) //nolint:errorlint // a sentinel would say that nothing was written
		}
	}
	if err != nil {
		return fmt.Errorf("write %d items, first %q %q: %w", len(ops), ops[0].Item.PK, ops[0].Item.SK, explain(err, len(ops)))
	}
	return nil
}

func (t *Table) transaction(ops []store.Op) (transaction, error) {
	in := transaction{TransactItems: make([]part, len(ops))}
	if t.token != nil {
		in.ClientRequestToken = t.token()
	}
	for i, op := range ops {
		part := &in.TransactItems[i]
		switch op.Kind {
		case store.Put:
			p, err := t.putOf(op)
			if err != nil {
				return transaction{}, err
			}
			part.Put = p
		case store.Update:
			part.Update = t.updateOf(op)
		default:
			part.ConditionCheck = t.checkOf(op)
		}
	}
	return in, nil
}

func (t *Table) putOf(op store.Op) (*input, error) {
	item, err := encode(op.Item)
	if err != nil {
		return nil, fmt.Errorf("encode item %q %q: %w", op.Item.PK, op.Item.SK, err)
	}
	var x expression
	in := &input{TableName: t.name, Item: item, ConditionExpression: x.conditions(op.If)}
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = x.names, x.values
	return in, nil
}

// updateOf also asks that the item exists: DynamoDB would make it.
func (t *Table) updateOf(op store.Op) *input {
	var x expression
	in := &input{TableName: t.name, Key: encodeKey(op.Item.Key), UpdateExpression: x.set(op.Item)}
	in.ConditionExpression = x.conditions(append([]store.Cond{{Op: store.ItemExists}}, op.If...))
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = x.names, x.values
	return in
}

func (t *Table) checkOf(op store.Op) *input {
	var x expression
	in := &input{TableName: t.name, Key: encodeKey(op.Item.Key), ConditionExpression: x.conditions(op.If)}
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = x.names, x.values
	return in
}
