package asl

import (
	"maps"
	"slices"
	"strings"
)

// rule is one test of a Choice.
type rule func(sc scope) (bool, error)

// parseRule reads And, Or, Not or a comparison of a variable.
func parseRule(f *fields) rule {
	f.text("Comment", optional)
	combined := f.count("And", "Or", "Not")
	if combined > 1 || combined == 1 && f.has("Variable") {
		f.fault("", "want one of And, Or, Not or Variable with one comparison")
	}
	switch {
	case f.has("And"):
		return every(f.rules("And"), true)
	case f.has("Or"):
		return every(f.rules("Or"), false)
	case f.has("Not"):
		return parseNot(f)
	default:
		return parseComparison(f)
	}
}

// rules are the operands of And or Or.
func (f *fields) rules(key string) []rule {
	f.get(key, required)
	var all []rule
	for _, c := range f.objects(key) {
		all = append(all, parseRule(c))
		c.end()
	}
	return all
}

// every holds unless a rule is other than want: And for true, and for false the opposite, Or.
func every(rules []rule, want bool) rule {
	return func(sc scope) (bool, error) {
		for _, r := range rules {
			if ok, err := r(sc); err != nil || ok != want {
				return !want, err
			}
		}
		return want, nil
	}
}

func parseNot(f *fields) rule {
	m := f.object("Not")
	inner := f.p.fields(f.state, f.prefix+"Not.", m)
	r := parseRule(inner)
	inner.end()
	return func(sc scope) (bool, error) {
		ok, err := r(sc)
		return !ok, err
	}
}

// parseComparison reads Variable and the one operator beside it.
func parseComparison(f *fields) rule {
	f.get("Variable", required)
	variable := f.path("Variable")
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(f.m)) {
		if isOperator(key) {
			keys = append(keys, key)
			f.asked[key] = true
		}
	}
	if len(keys) != 1 {
		f.fault("", "want exactly one comparison")
		return nil
	}
	if test, ok := tests[keys[0]]; ok {
		return testRule(variable, keys[0], test, f.flag(keys[0]))
	}
	return comparisonRule(f, variable, keys[0])
}

func isOperator(key string) bool {
	_, isTest := tests[key]
	_, isComparison := comparisons[strings.TrimSuffix(key, "Path")]
	return isTest || isComparison && key != "StringMatchesPath"
}

// testRule holds when the test of the variable gives want. Only IsPresent takes a variable that is not there.
func testRule(variable *path, key string, test func(v any) bool, want bool) rule {
	return func(sc scope) (bool, error) {
		v, ok := sc.get(variable)
		if key == "IsPresent" {
			return ok == want, nil
		}
		if !ok {
			return false, nowhere(variable)
		}
		return test(v) == want, nil
	}
}

// comparisonRule compares the variable with a literal or with what another path leads to. Types that do not fit make it false.
func comparisonRule(f *fields, variable *path, key string) rule {
	name, isPath := strings.CutSuffix(key, "Path")
	compare := comparisons[name]
	literal := f.m[key]
	var other *path
	if isPath {
		other = f.path(key)
	} else if !compare.takes(literal) {
		f.fault(key, "the operand has the wrong type")
	}
	return func(sc scope) (bool, error) {
		v, ok := sc.get(variable)
		if !ok {
			return false, nowhere(variable)
		}
		operand := literal
		if other != nil {
			if operand, ok = sc.get(other); !ok {
				return false, nowhere(other)
			}
		}
		return compare.takes(v) && compare.takes(operand) && compare.holds(v, operand), nil
	}
}

func nowhere(p *path) *Failure { return failf(Runtime, "the path %s leads nowhere", p.text) }
