// Package dynamo implements store.Table in DynamoDB: one table, one index, one request for each call of the port.
//
// An item is stored under the names of package store: PK, SK, Body, Index and IndexSort, with its attributes beside
// them as strings and numbers. A body of more than 2 KB is stored deflated if that makes it smaller (see item.go).
// store.CheckOps limits the uncompressed item.
//
// The meaning of a failure is kept exact (store.Table, protocol rule 2):
//
//   - Single writes are never resent. A conditional put that is resent after a lost response would fail on the writer's
//     own item and claim that nothing was written. So the error of a put or update with an unknown outcome says so, and
//     the caller reads again.
//   - A transaction with an unknown outcome is sent once more under its token, which DynamoDB executes once.
//   - Reads are resent, up to three attempts, if the connection or the service fails.
//   - Throttling and transaction conflicts are returned and not resent here: store.Resend does that, on our clock.
package dynamo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/store"
)

// IndexName is the table's one secondary index: partition key Index, sort key IndexSort, all attributes projected.
const IndexName = "lists"

// Table is a store.Table in DynamoDB. Use New to make one. Safe for concurrent use.
type Table struct {
	getItem            awssdk.Operation[dynamodb.GetItemInput, dynamodb.GetItemOutput, dynamodb.Options]
	query              awssdk.Operation[dynamodb.QueryInput, dynamodb.QueryOutput, dynamodb.Options]
	putItem            awssdk.Operation[dynamodb.PutItemInput, dynamodb.PutItemOutput, dynamodb.Options]
	updateItem         awssdk.Operation[dynamodb.UpdateItemInput, dynamodb.UpdateItemOutput, dynamodb.Options]
	deleteItem         awssdk.Operation[dynamodb.DeleteItemInput, dynamodb.DeleteItemOutput, dynamodb.Options]
	transactWriteItems awssdk.Operation[dynamodb.TransactWriteItemsInput, dynamodb.TransactWriteItemsOutput,
		dynamodb.Options]

	reads func(*dynamodb.Options) // options of requests that read
	name  string
	token func() string
}

// New returns a Table over an existing DynamoDB table with the keys PK and SK and the index IndexName. token returns
// the client request token of a transaction: random, unique, 1 to 36 characters. An attempt takes at most 2 s, unless
// cfg has an HTTP client that is not the SDK's own. Retry settings of cfg do not apply.
func New(cfg aws.Config, table string, token func() string) *Table {
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		// DynamoDB answers within tens of milliseconds, so a request that takes this long is lost.
		o.HTTPClient = awssdk.WithTimeout(o.HTTPClient, 2*time.Second)
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.AccountIDEndpointMode = aws.AccountIDEndpointModeDisabled
	})
	retryer := retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff = 3, 200*time.Millisecond
		// Two failures of a read are decided before the SDK does: the caller handles throttling, and a truncated response is
		// requested again.
		first := retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			var api smithy.APIError
			switch {
			case errors.As(err, &api) && throttles[api.ErrorCode()]:
				return aws.FalseTernary
			case errors.Is(err, io.ErrUnexpectedEOF):
				return aws.TrueTernary
			default:
				return aws.UnknownTernary
			}
		})
		o.Retryables = append([]retry.IsErrorRetryable{first}, o.Retryables...)
	})
	reads := func(o *dynamodb.Options) { o.Retryer = retryer }
	return &Table{
		getItem: client.GetItem, query: client.Query, putItem: client.PutItem, updateItem: client.UpdateItem,
		deleteItem: client.DeleteItem, transactWriteItems: client.TransactWriteItems, reads: reads, name: table, token: token,
	}
}

// Get implements store.Table with one consistent GetItem.
func (t *Table) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := cmp.Or(ctx.Err(), store.CheckKey(k)); err != nil {
		return store.Item{}, false, err
	}
	in := &dynamodb.GetItemInput{TableName: &t.name, Key: encodeKey(k), ConsistentRead: aws.Bool(true)}
	out, err := t.getItem(ctx, in, t.reads)
	if err != nil {
		return store.Item{}, false, fmt.Errorf("get item %q %q: %w", k.PK, k.SK, explain(err, 1))
	}
	if len(out.Item) == 0 {
		return store.Item{}, false, nil
	}
	it, err := decode(out.Item)
	return it, err == nil, err
}

// Query implements store.Table with one Query, which is consistent unless it reads the index. An obviously empty range
// needs no request. A page may be empty and still have a cursor.
func (t *Table) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	start, isEmpty, err := startKey(r)
	if err != nil || isEmpty {
		return store.Page{}, err
	}
	var x expression
	cond := x.keyCondition(r)
	in := &dynamodb.QueryInput{
		TableName: &t.name, ConsistentRead: aws.Bool(!r.Index), ScanIndexForward: aws.Bool(!r.Reverse),
		ExclusiveStartKey:      start,
		KeyConditionExpression: &cond, ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
	}
	if r.Index {
		in.IndexName = aws.String(IndexName)
	}
	if r.Limit > 0 {
		in.Limit = aws.Int32(int32(min(r.Limit, math.MaxInt32)))
	}
	out, err := t.query(ctx, in, t.reads)
	if err != nil {
		return store.Page{}, fmt.Errorf("query %q: %w", r.PK, explain(err, 1))
	}
	// DynamoDB limits a page by stored bytes, the port by bytes of items. If bodies were compressed, items that do not fit
	// are left for the next page.
	pager := store.Pager{Range: r}
	for _, s := range out.Items {
		it, err := decode(s)
		if err != nil {
			at := store.Item{Key: store.Key{PK: textOf(s[store.NamePK]), SK: textOf(s[store.NameSK])},
				IndexSort: textOf(s[store.NameIndexSort])}
			pager.Skip(store.Position(at, r.Index))
			return pager.Page, err
		}
		if !pager.Add(it) {
			return pager.Page, nil
		}
	}
	if len(out.LastEvaluatedKey) > 0 {
		last, err := decode(out.LastEvaluatedKey)
		if err != nil {
			return store.Page{}, err
		}
		pager.Skip(store.Position(last, r.Index))
	}
	return pager.Page, nil
}

// Write implements store.Table. One Put, Update or Delete is its own request, one Check is a consistent GetItem, and
// several operations are one TransactWriteItems.
func (t *Table) Write(ctx context.Context, ops ...store.Op) error {
	if err := cmp.Or(ctx.Err(), store.CheckOps(ops)); err != nil {
		return err
	}
	if len(ops) > 1 {
		return t.transact(ctx, ops)
	}
	k := ops[0].Item.Key
	if ops[0].Kind == store.Check {
		// A transaction of one ConditionCheck would say no more than this read. It costs a quarter and conflicts with nobody.
		it, found, err := t.Get(ctx, k)
		if err == nil && !store.Holds(ops[0].If, it, found) {
			err = &store.ConditionError{Failed: []int{0}}
		}
		return err
	}
	o, err := t.operation(ops[0])
	if err != nil {
		return err
	}
	var what string
	if p := o.Put; p != nil {
		what = "put"
		_, err = t.putItem(ctx, &dynamodb.PutItemInput{
			TableName: p.TableName, Item: p.Item, ConditionExpression: p.ConditionExpression,
			ExpressionAttributeNames: p.ExpressionAttributeNames, ExpressionAttributeValues: p.ExpressionAttributeValues,
		})
	} else if x := o.Delete; x != nil {
		what = "delete"
		_, err = t.deleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: x.TableName, Key: x.Key, ConditionExpression: x.ConditionExpression,
			ExpressionAttributeNames: x.ExpressionAttributeNames, ExpressionAttributeValues: x.ExpressionAttributeValues,
		})
	} else {
		what = "update"
		u := o.Update
		_, err = t.updateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: u.TableName, Key: u.Key, UpdateExpression: u.UpdateExpression,
			ConditionExpression:      u.ConditionExpression,
			ExpressionAttributeNames: u.ExpressionAttributeNames, ExpressionAttributeValues: u.ExpressionAttributeValues,
		})
	}
	if err != nil {
		return fmt.Errorf("%s item %q %q: %w", what, k.PK, k.SK, explain(err, 1))
	}
	return nil
}

// operation returns op as a part of a transaction. An Update gets the condition that the item exists, because DynamoDB
// would create it.
func (t *Table) operation(op store.Op) (types.TransactWriteItem, error) {
	var x expression
	var change string
	conds, key := op.If, encodeKey(op.Item.Key)
	switch op.Kind {
	case store.Update:
		change, conds = x.set(op.Item), append([]store.Cond{{Op: store.ItemExists}}, op.If...)
	case store.Add:
		change = "ADD " + strings.Join(x.attributes(op.Item, " "), ", ")
	}
	cond := x.conditions(conds)
	switch op.Kind {
	case store.Put:
		item, err := encode(op.Item)
		if err != nil {
			return types.TransactWriteItem{}, fmt.Errorf("encode item %q %q: %w", op.Item.PK, op.Item.SK, err)
		}
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &t.name, Item: item, ConditionExpression: cond,
			ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
		}}, nil
	case store.Update, store.Add:
		return types.TransactWriteItem{Update: &types.Update{
			TableName: &t.name, Key: key, UpdateExpression: &change, ConditionExpression: cond,
			ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
		}}, nil
	case store.Delete:
		return types.TransactWriteItem{Delete: &types.Delete{
			TableName: &t.name, Key: key, ConditionExpression: cond,
			ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
		}}, nil
	default:
		return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
			TableName: &t.name, Key: key, ConditionExpression: cond,
			ExpressionAttributeNames: x.names, ExpressionAttributeValues: x.values,
		}}, nil
	}
}

// transact sends a transaction, and once more under its token if the outcome is unknown. If the second response says
// that nothing was done this time, the first request may still have been executed, so the outcome stays unknown.
func (t *Table) transact(ctx context.Context, ops []store.Op) error {
	in := &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: aws.String(t.token()), TransactItems: make([]types.TransactWriteItem, len(ops)),
	}
	for i, op := range ops {
		var err error
		if in.TransactItems[i], err = t.operation(op); err != nil {
			return err
		}
	}
	first := ops[0].Item.Key
	_, err := t.transactWriteItems(ctx, in)
	if isUncertain(err) && ctx.Err() == nil {
		_, err = t.transactWriteItems(ctx, in)
		if again := explain(err, len(ops)); errors.Is(again, store.ErrThrottled) || errors.Is(again, store.ErrConflict) {
			//nolint:errorlint // a sentinel would say that nothing was written
			return fmt.Errorf("write %d items, first %q %q: outcome unknown: %v", len(ops), first.PK, first.SK, err)
		}
	}
	if err != nil {
		return fmt.Errorf("write %d items, first %q %q: %w", len(ops), first.PK, first.SK, explain(err, len(ops)))
	}
	return nil
}

// expression collects the placeholders of one operation's expressions. Names are always placeholders, since any name
// may be a reserved word of DynamoDB. Both maps are nil while empty, because DynamoDB refuses an empty one.
type expression struct {
	names  map[string]string
	values attributes
}

func (x *expression) name(attr string) string {
	if x.names == nil {
		x.names = map[string]string{}
	}
	p := "#n" + strconv.Itoa(len(x.names))
	x.names[p] = attr
	return p
}

func (x *expression) value(v types.AttributeValue) string {
	if x.values == nil {
		x.values = attributes{}
	}
	p := ":v" + strconv.Itoa(len(x.values))
	x.values[p] = v
	return p
}

// conditions returns the ConditionExpression under which all conds hold; nil for none. In DynamoDB, a comparison with a
// missing attribute or with a value of another type is false, as the port requires.
func (x *expression) conditions(conds []store.Cond) *string {
	if len(conds) == 0 {
		return nil
	}
	operators := map[store.CondOp]string{store.Equal: " = ", store.AtMost: " <= ", store.Above: " > "}
	parts := make([]string, len(conds))
	for i, c := range conds {
		switch c.Op {
		case store.ItemAbsent:
			parts[i] = "attribute_not_exists(" + x.name(store.NamePK) + ")"
		case store.ItemExists:
			parts[i] = "attribute_exists(" + x.name(store.NamePK) + ")"
		default:
			parts[i] = x.name(c.Attr) + operators[c.Op] + x.value(encodeValue(c.Value))
		}
	}
	return aws.String(strings.Join(parts, " AND "))
}

// set returns the UpdateExpression that sets the item's attributes, and its index if it has one.
func (x *expression) set(it store.Item) string {
	parts := x.attributes(it, " = ")
	if it.Index != "" {
		parts = append(parts,
			x.name(store.NameIndex)+" = "+x.value(str(it.Index)),
			x.name(store.NameIndexSort)+" = "+x.value(str(it.IndexSort)))
	}
	return "SET " + strings.Join(parts, ", ")
}

// attributes returns the item's attributes as parts of an UpdateExpression, with word between name and value.
func (x *expression) attributes(it store.Item, word string) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(it.Attrs)) {
		parts = append(parts, x.name(name)+word+x.value(encodeValue(it.Attrs[name])))
	}
	return parts
}

// keyCondition returns the KeyConditionExpression of a range without its cursor.
func (x *expression) keyCondition(r store.Range) string {
	partition, sort := store.NamePK, store.NameSK
	if r.Index {
		partition, sort = store.NameIndex, store.NameIndexSort
	}
	cond := x.name(partition) + " = " + x.value(str(r.PK))
	switch {
	case r.From != "" && r.To != "":
		return cond + " AND " + x.name(sort) + " BETWEEN " + x.value(str(r.From)) + " AND " + x.value(str(r.To))
	case r.From != "":
		return cond + " AND " + x.name(sort) + " >= " + x.value(str(r.From))
	case r.To != "":
		return cond + " AND " + x.name(sort) + " <= " + x.value(str(r.To))
	default:
		return cond
	}
}
