package storetest

import (
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/store"
)

// generator draws from few keys and values, so that operations meet. Names are prefixes of each other, or differ in the
// smallest and greatest characters.
type generator struct{ prefix string }

// partitions are the partitions of items and of the index.
func (g generator) partitions() []string {
	return []string{g.prefix + "P", g.prefix + "PP", g.prefix + "P\x01", g.prefix + "P\U0010FFFF"}
}

func (g generator) partition() *rapid.Generator[string] { return rapid.SampledFrom(g.partitions()) }

func (g generator) sort() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"A", "AA", "A\x01", "B", "\x01", "\U0010FFFF"})
}

func (g generator) key() *rapid.Generator[store.Key] {
	return rapid.Custom(func(t *rapid.T) store.Key {
		return key(g.partition().Draw(t, "PK"), g.sort().Draw(t, "SK"))
	})
}

func (g generator) value() *rapid.Generator[store.Value] {
	return rapid.SampledFrom([]store.Value{store.Num(0), store.Num(1), store.Num(2), store.Str(""), store.Str("1")})
}

func (g generator) attrs(least int) *rapid.Generator[attrs] {
	return rapid.MapOfN(rapid.SampledFrom([]string{"n", "m"}), g.value(), least, 2)
}

func (g generator) conds(least int) *rapid.Generator[[]store.Cond] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Cond {
		c := store.Cond{
			Attr: rapid.SampledFrom([]string{"n", "m"}).Draw(t, "attr"),
			Op: rapid.SampledFrom([]store.CondOp{store.ItemAbsent, store.ItemExists, store.Equal, store.AtMost,
				store.Above}).Draw(t, "op"),
		}
		c.Value = g.value().Draw(t, "value")
		if c.Op == store.AtMost || c.Op == store.Above {
			c.Value = store.Num(c.Value.Int())
		}
		return c
	}), least, 2)
}

// ops draws a Write of one to four operations on different keys.
func (g generator) ops() *rapid.Generator[[]store.Op] {
	return rapid.SliceOfNDistinct(g.op(), 1, 4, func(op store.Op) store.Key { return op.Item.Key })
}

func (g generator) op() *rapid.Generator[store.Op] {
	return rapid.Custom(func(t *rapid.T) store.Op {
		kinds := []store.OpKind{store.Put, store.Put, store.Update, store.Check, store.Delete}
		op := store.Op{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
			Item: store.Item{Key: g.key().Draw(t, "key")},
		}
		switch op.Kind {
		case store.Check, store.Delete:
			least := 1
			if op.Kind == store.Delete {
				least = 0
			}
			op.If = g.conds(least).Draw(t, "if")
			return op
		case store.Update:
			op.Item.Attrs = g.attrs(1).Draw(t, "attrs")
		case store.Put:
			op.Item.Attrs = g.attrs(0).Draw(t, "attrs")
			op.Item.Body = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "body")
		}
		if rapid.IntRange(0, 2).Draw(t, "conditional") == 2 {
			op.If = g.conds(1).Draw(t, "if")
		}
		if rapid.Bool().Draw(t, "listed") {
			op.Item.Index = g.partition().Draw(t, "index")
			op.Item.IndexSort = g.sort().Draw(t, "index sort")
		}
		return op
	})
}

func (g generator) span() *rapid.Generator[store.Range] {
	bound := rapid.OneOf(rapid.Just(""), g.sort())
	return rapid.Custom(func(t *rapid.T) store.Range {
		return store.Range{
			PK:      g.partition().Draw(t, "partition"),
			From:    bound.Draw(t, "from"),
			To:      bound.Draw(t, "to"),
			Limit:   rapid.IntRange(0, 4).Draw(t, "limit"),
			Reverse: rapid.Bool().Draw(t, "reverse"),
		}
	})
}
