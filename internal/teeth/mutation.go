package teeth

// Mutation takes one thing away that keeps runs right.
type Mutation struct {
	Name  string // as COUNTERSIGN_TOOTH has it
	Of    string // what it is of: "rule 1" to "rule 16" of docs/protocol.md, or Defence
	Takes string // what the mutated product does, as a sentence without a full stop
	Edits []Edit
	Cases []Case // each of them catches it
}

// Defence is what a Mutation is of that takes no whole rule.
const Defence = "defence"

// Edit exchanges a text that stands once in a file for another. The new text asks tooth(names...) before it does anything else than the old, or
// has it in either(name, with, without).
type Edit struct {
	File     string // from the folder of go.mod
	Old, New string
}

// Case is what catches a mutation: a scenario with a fault or act, or a test of a package. Exactly one of Scenario and Test is set.
type Case struct {
	Scenario string // an archive of scenarios/ or testdata/, without its extension
	With     string // what goes wrong in it or who acts: see package jaw; "" = nothing does
	Package  string // whose Test it is; "" = pkg/agent/runtime
	Test     string // a test, as `go test -run` has it
	Why      string // of a Test: what a scenario would need to catch the mutation
	Wants    string // stands in what the case says where it fails
}

// String names the case.
func (c Case) String() string {
	switch {
	case c.Test != "":
		return c.Test
	case c.With == "":
		return c.Scenario
	default:
		return c.Scenario + ", " + c.With
	}
}
