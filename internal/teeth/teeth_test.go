package teeth

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/teeth.md again")

// TestTeeth builds the product with all mutations and lets every case catch its own. Without a mutation that build passes every case.
func TestTeeth(t *testing.T) {
	r, err := Bite(t.Context(), "../..", t.TempDir(), Mutations())
	require.NoError(t, err)
	t.Logf("\n%s", r)
	require.NoError(t, r.Err())
}

// TestMutationsFit: each edit is of a text that stands once in the code of now, and works by the mutation's name alone.
func TestMutationsFit(t *testing.T) {
	sources, err := mutated("../..", Mutations())
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, m := range Mutations() {
		require.NotEmpty(t, m.Edits, m.Name)
		for _, e := range m.Edits {
			require.Contains(t, e.New, `"`+m.Name+`"`, "of %s", m.Name)
			require.Regexp(t, `\b(tooth\(|either(\[\w+\])?\()`, e.New, "of %s", m.Name)
		}
	}
}

// needed are the defences of docs/reliability.md that have a mutation, each by its name.
var needed = []string{
	"no-claim", "no-fence", "no-reread", "no-look", "no-sweeper", "seen-apart", "digest-unchecked", "expiry-unchecked", "grant-outlives",
	"duplicate-accepted", "cancel-without-entry", "hint-trusted", "cache-stays",
}

// TestMutationsAreWhole: every rule and every defence has one, and each says what catches it and how.
func TestMutationsAreWhole(t *testing.T) {
	var names, of []string
	for _, m := range Mutations() {
		require.NotContains(t, names, m.Name)
		names, of = append(names, m.Name), append(of, m.Of)
		require.NotEmpty(t, m.Takes, m.Name)
		require.NotEmpty(t, m.Cases, m.Name)
		for _, c := range m.Cases {
			require.NotEmpty(t, c.Wants, m.Name)
			require.NotEqual(t, c.Scenario == "", c.Test == "", m.Name)
			require.Equal(t, c.Test != "", c.Why != "", "%s says what a scenario lacks, and only then", m.Name)
		}
	}
	for n := 1; n <= 16; n++ {
		require.Contains(t, of, fmt.Sprintf("rule %d", n))
	}
	for _, name := range needed {
		require.Contains(t, names, name)
	}
	require.Len(t, names, len(needed)+len(slices.DeleteFunc(of, func(s string) bool { return s == Defence })))
}

// TestTable: what people read of the list is the list.
func TestTable(t *testing.T) {
	const file = "testdata/teeth.md"
	table := Table(Mutations())
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(table), 0o600))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(golden), table, "write it again: go test ./internal/teeth -run TestTable -update")
}

func TestEdited(t *testing.T) {
	for _, c := range []struct {
		edits []Edit
		want  string
		wrong string
	}{
		{nil, "abcabd", ""},
		{[]Edit{{Old: "cab", New: "-"}}, "ab-d", ""},
		{[]Edit{{Old: "d", New: "2"}, {Old: "abc", New: "1 abd"}}, "1 abdab2", ""},
		{[]Edit{{Old: "x"}}, "", "stands there 0 times"},
		{[]Edit{{Old: "ab"}}, "", "stands there 2 times"},
		{[]Edit{{Old: "abc"}, {Old: "ca"}}, "", "two edits are of the same text"},
	} {
		got, err := edited("abcabd", c.edits)
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

// TestReport: what survives, what fails for another reason and what fails without a mutation are each an error.
func TestReport(t *testing.T) {
	c := Case{Scenario: "s", Wants: "twice"}
	caught := Outcome{Mutation: "m", Case: c, Failed: true, Said: "first\npaid twice\n"}
	require.Equal(t, "paid twice", caught.Line())
	require.NoError(t, (&Report{With: []Outcome{caught}, Without: []Outcome{{Case: c}}}).Err())
	for said, r := range map[string]Report{
		"m survives s":                  {With: []Outcome{{Mutation: "m", Case: c, Said: "paid twice"}}},
		"m fails s for another reason":  {With: []Outcome{{Mutation: "m", Case: c, Failed: true, Said: "panic: paid once"}}},
		"without a mutation, s fails":   {Without: []Outcome{caught}},
		"m fails s for another reason,": {With: []Outcome{{Mutation: "m", Case: c, Failed: true, Said: "paid twice\npanic: it is nil"}}},
	} {
		require.ErrorContains(t, r.Err(), said)
	}
}

// TestShort: of a long line, what is wanted of it stays.
func TestShort(t *testing.T) {
	long := strings.Repeat("a", 500) + "twice" + strings.Repeat("b", 500)
	require.Contains(t, short(long, "twice"), "twice")
	require.Less(t, len(short(long, "twice")), 200)
	require.Equal(t, "twice", short("twice", "twice"))
}
