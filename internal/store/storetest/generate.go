package storetest

import (
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/store"
)

// draw draws from few keys and values, so that operations collide. Names are prefixes of each other, or differ in the
// smallest and greatest characters.
type draw struct {
	*rapid.T
	prefix string
}

func (d draw) partitions() []string {
	return []string{d.prefix + "P", d.prefix + "PP", d.prefix + "P\x01", d.prefix + "P\U0010FFFF"}
}

func (d draw) partition() string { return rapid.SampledFrom(d.partitions()).Draw(d.T, "partition") }

func (d draw) sort() string {
	return rapid.SampledFrom([]string{"A", "AA", "A\x01", "B", "\x01", "\U0010FFFF"}).Draw(d.T, "sort")
}

func (d draw) key() store.Key { return key(d.partition(), d.sort()) }

var (
	names  = rapid.SampledFrom([]string{"n", "m"})
	values = rapid.SampledFrom([]store.Value{store.Num(0), store.Num(1), store.Num(2), store.Str(""), store.Str("1")})

	conditions = rapid.Custom(func(t *rapid.T) store.Cond {
		operators := []store.CondOp{store.ItemAbsent, store.ItemExists, store.Equal, store.AtMost, store.Above}
		c := cond(names.Draw(t, "attr"), rapid.SampledFrom(operators).Draw(t, "op"), values.Draw(t, "value"))
		if c.Op == store.AtMost || c.Op == store.Above {
			c.Value = store.Num(c.Value.Int())
		}
		return c
	})
)

func (d draw) conds(least int) []store.Cond {
	return rapid.SliceOfN(conditions, least, 2).Draw(d.T, "if")
}

// ops draws a Write of one to four operations on different keys.
func (d draw) ops() []store.Op {
	op := rapid.Custom(func(t *rapid.T) store.Op { return draw{t, d.prefix}.op() })
	return rapid.SliceOfNDistinct(op, 1, 4, func(op store.Op) store.Key { return op.Item.Key }).Draw(d.T, "ops")
}

func (d draw) op() store.Op {
	kinds := []store.OpKind{store.Put, store.Put, store.Update, store.Check, store.Delete, store.Add}
	op := store.Op{Kind: rapid.SampledFrom(kinds).Draw(d.T, "kind"), Item: store.Item{Key: d.key()}}
	leastAttrs := 0
	switch op.Kind {
	case store.Check:
		op.If = d.conds(1)
		return op
	case store.Delete:
		op.If = d.conds(0)
		return op
	case store.Add: // an attribute that no other operation writes, because a text cannot be added to
		op.Item.Attrs = attrs{"sum": store.Num(rapid.Int64Range(-9, 9).Draw(d.T, "add"))}
		return op
	case store.Update:
		leastAttrs = 1
	case store.Put:
		op.Item.Body = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(d.T, "body")
	}
	op.Item.Attrs = rapid.MapOfN(names, values, leastAttrs, 2).Draw(d.T, "attrs")
	if rapid.IntRange(0, 2).Draw(d.T, "conditional") == 2 {
		op.If = d.conds(1)
	}
	if rapid.Bool().Draw(d.T, "listed") {
		op.Item.Index, op.Item.IndexSort = d.partition(), d.sort()
	}
	return op
}

func (d draw) span() store.Range {
	r := store.Range{PK: d.partition(), Limit: rapid.IntRange(0, 4).Draw(d.T, "limit"),
		Reverse: rapid.Bool().Draw(d.T, "reverse")}
	for _, bound := range []*string{&r.From, &r.To} {
		if rapid.Bool().Draw(d.T, "bounded") {
			*bound = d.sort()
		}
	}
	return r
}
