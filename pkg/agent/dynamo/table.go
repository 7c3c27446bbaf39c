// Package dynamo keeps a store.Table in DynamoDB: one table, one index, one request for each call of the port.
//
// An item is stored under the names of package store: PK, SK, Body, Index and IndexSort, and its attributes beside them as strings
// and numbers. A body of more than 2 KB is stored deflated if that makes it smaller (see body.go); what may be written is
// decided by store.CheckOps on the item as it is, not as it is stored.
//
// What a failure means is kept exact (store.Table, protocol.md rule 2):
//
//   - The SDK resends no write. A conditional put that it resent after a lost answer would fail on the writer's own item and say that
//     nothing was written. So a put or update whose outcome is not known says so, and the caller reads again.
//   - A transaction whose outcome is not known is sent once more under the same client request token, which DynamoDB executes once.
//   - Reads are resent by the SDK, three attempts, when the connection or the service fails.
//   - Throttling and transaction conflicts are never resent here but reported: store.Resend does it, on our clock, with one budget.
package dynamo

import (
	"context"
	"fmt"
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/pkg/agent/store"
)

// IndexName is the table's one secondary index: partition key Index, sort key IndexSort, everything projected.
const IndexName = "lists"

// API is what is used of a *dynamodb.Client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Options of New. The zero value is usable.
type Options struct {
	// Token draws the client request token of a transaction: random, unique, 1 to 36 characters. Nil: a transaction whose outcome is
	// not known is not sent again.
	Token func() string
}

// Table is a store.Table in DynamoDB. Make one with New. Safe for concurrent use.
type Table struct {
	api   API
	name  string
	token func() string
	read  func(*dynamodb.Options)
}

var _ store.Table = (*Table)(nil)

// New makes a Table of the DynamoDB table of that name, which exists: its keys are PK and SK, and its index is IndexName.
func New(client API, table string, opts Options) *Table {
	r := readRetryer()
	return &Table{api: client, name: table, token: opts.Token, read: func(o *dynamodb.Options) { o.Retryer = r }}
}

// Get implements store.Table by one consistent GetItem.
func (t *Table) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := ctx.Err(); err != nil {
		return store.Item{}, false, err
	}
	if err := store.CheckKey(k); err != nil {
		return store.Item{}, false, err
	}
	out, err := t.api.GetItem(ctx, &dynamodb.GetItemInput{TableName: &t.name, Key: encodeKey(k), ConsistentRead: aws.Bool(true)}, t.read)
	if err != nil {
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
	in := &dynamodb.QueryInput{
		TableName: &t.name, ConsistentRead: aws.Bool(!r.Index), ScanIndexForward: aws.Bool(!r.Reverse), ExclusiveStartKey: s.startKey(),
	}
	if r.Index {
		in.IndexName = aws.String(IndexName)
	}
	if r.Limit > 0 {
		in.Limit = aws.Int32(int32(min(r.Limit, math.MaxInt32)))
	}
	var x expression
	in.KeyConditionExpression = aws.String(x.keyCondition(r))
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = x.names, x.values
	out, err := t.api.Query(ctx, in, t.read)
	if err != nil {
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
	_, err = t.api.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: p.TableName, Item: p.Item, ConditionExpression: p.ConditionExpression,
		ExpressionAttributeNames: p.ExpressionAttributeNames, ExpressionAttributeValues: p.ExpressionAttributeValues,
	}, once)
	if err != nil {
		return fmt.Errorf("put item %q %q: %w", op.Item.PK, op.Item.SK, explain(err, 1))
	}
	return nil
}

func (t *Table) update(ctx context.Context, op store.Op) error {
	u := t.updateOf(op)
	_, err := t.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: u.TableName, Key: u.Key, UpdateExpression: u.UpdateExpression, ConditionExpression: u.ConditionExpression,
		ExpressionAttributeNames: u.ExpressionAttributeNames, ExpressionAttributeValues: u.ExpressionAttributeValues,
	}, once)
	if err != nil {
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
	_, err = t.api.TransactWriteItems(ctx, in, once)
	if uncertain(err) && t.token != nil && ctx.Err() == nil {
		_, err = t.api.TransactWriteItems(ctx, in, once)
		if transient(err) {
			return fmt.Errorf("write %d items, first %q %q: outcome unknown: %v", len(ops), ops[0].Item.PK, ops[0].Item.SK, err) //nolint:errorlint // a sentinel would say that nothing was written
		}
	}
	if err != nil {
		return fmt.Errorf("write %d items, first %q %q: %w", len(ops), ops[0].Item.PK, ops[0].Item.SK, explain(err, len(ops)))
	}
	return nil
}

func (t *Table) transaction(ops []store.Op) (*dynamodb.TransactWriteItemsInput, error) {
	in := &dynamodb.TransactWriteItemsInput{TransactItems: make([]types.TransactWriteItem, len(ops))}
	if t.token != nil {
		in.ClientRequestToken = aws.String(t.token())
	}
	for i, op := range ops {
		part := &in.TransactItems[i]
		switch op.Kind {
		case store.Put:
			p, err := t.putOf(op)
			if err != nil {
				return nil, err
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

func (t *Table) putOf(op store.Op) (*types.Put, error) {
	item, err := encode(op.Item)
	if err != nil {
		return nil, fmt.Errorf("encode item %q %q: %w", op.Item.PK, op.Item.SK, err)
	}
	var x expression
	cond := x.conditions(op.If)
	return &types.Put{
		TableName: &t.name, Item: item, ConditionExpression: cond,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
	}, nil
}

// updateOf also asks that the item exists: DynamoDB would make it.
func (t *Table) updateOf(op store.Op) *types.Update {
	var x expression
	set := x.set(op.Item)
	cond := x.conditions(append([]store.Cond{{Op: store.ItemExists}}, op.If...))
	return &types.Update{
		TableName: &t.name, Key: encodeKey(op.Item.Key), UpdateExpression: &set, ConditionExpression: cond,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
	}
}

func (t *Table) checkOf(op store.Op) *types.ConditionCheck {
	var x expression
	cond := x.conditions(op.If)
	return &types.ConditionCheck{
		TableName: &t.name, Key: encodeKey(op.Item.Key), ConditionExpression: cond,
		ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
	}
}
