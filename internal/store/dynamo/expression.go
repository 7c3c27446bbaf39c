package dynamo

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/internal/store"
)

// expression collects the placeholders of one operation's expressions. Names are always placeholders, since any of them
// may be one of DynamoDB's reserved words. Both maps stay nil while empty: DynamoDB refuses an empty one.
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

func (x *expression) text(s string) string { return x.value(str(s)) }

// conditions is the ConditionExpression under which all conds hold; nil for none.
func (x *expression) conditions(conds []store.Cond) *string {
	if len(conds) == 0 {
		return nil
	}
	parts := make([]string, len(conds))
	for i, c := range conds {
		parts[i] = x.condition(c)
	}
	all := strings.Join(parts, " AND ")
	return &all
}

// condition relies on DynamoDB's comparisons being false for a missing attribute and for a value of another type.
func (x *expression) condition(c store.Cond) string {
	switch c.Op {
	case store.ItemAbsent:
		return "attribute_not_exists(" + x.name(store.NamePK) + ")"
	case store.ItemExists:
		return "attribute_exists(" + x.name(store.NamePK) + ")"
	case store.AtMost:
		return x.name(c.Attr) + " <= " + x.value(encodeValue(c.Value))
	case store.Above:
		return x.name(c.Attr) + " > " + x.value(encodeValue(c.Value))
	default:
		return x.name(c.Attr) + " = " + x.value(encodeValue(c.Value))
	}
}

// set is the UpdateExpression that writes the item's attributes, and its index if it has one.
func (x *expression) set(it store.Item) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(it.Attrs)) {
		parts = append(parts, x.name(name)+" = "+x.value(encodeValue(it.Attrs[name])))
	}
	if it.Index != "" {
		parts = append(parts,
			x.name(store.NameIndex)+" = "+x.text(it.Index),
			x.name(store.NameIndexSort)+" = "+x.text(it.IndexSort))
	}
	return "SET " + strings.Join(parts, ", ")
}

// keyCondition is the KeyConditionExpression of a range, its cursor aside.
func (x *expression) keyCondition(r store.Range) string {
	partition, sort := store.NamePK, store.NameSK
	if r.Index {
		partition, sort = store.NameIndex, store.NameIndexSort
	}
	cond := x.name(partition) + " = " + x.text(r.PK)
	switch {
	case r.From != "" && r.To != "":
		return cond + " AND " + x.name(sort) + " BETWEEN " + x.text(r.From) + " AND " + x.text(r.To)
	case r.From != "":
		return cond + " AND " + x.name(sort) + " >= " + x.text(r.From)
	case r.To != "":
		return cond + " AND " + x.name(sort) + " <= " + x.text(r.To)
	default:
		return cond
	}
}
