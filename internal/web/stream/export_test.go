package stream

import (
	"maps"
	"slices"
)

// Lines are the facts that have a line, sorted.
func Lines() []string { return slices.Sorted(maps.Keys(lines)) }

// Forget takes lines away until the function it returns is called.
func Forget(facts ...string) (restore func()) {
	was := maps.Clone(lines)
	for _, f := range facts {
		delete(lines, f)
	}
	return func() { lines = was }
}
