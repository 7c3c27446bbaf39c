package tool

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Limits for what a model is told about its arguments.
const (
	maxViolations   = 20  // lines
	maxLineRunes    = 200 // characters of a line
	maxQuotedRunes  = 60  // characters of a quoted value or name
	maxAlternatives = 5   // forms of anyOf and oneOf; for values of an enum four times as many
)

// violation is one error at one place.
type violation struct {
	at   []string // tokens of the JSON Pointer
	text string
}

func (v violation) String() string { return truncate("at "+pointer(v.at)+": "+v.text, maxLineRunes) }

// report returns every violation on its own line, sorted, without duplicates. It does not use the library's texts,
// because these group digits, round numbers and speak of schemas.
func report(e *jsonschema.ValidationError) string {
	lines := run.Map(violations(e), violation.String)
	slices.Sort(lines)
	lines = slices.Compact(lines)
	if more := len(lines) - maxViolations; more > 0 {
		lines = append(lines[:maxViolations], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// violations flattens the tree of causes to errors that a writer of arguments can act on.
func violations(e *jsonschema.ValidationError) []violation {
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return eachViolation(e, k.Missing, "the property %s is missing")
	case *kind.AdditionalProperties:
		return eachViolation(e, k.Properties, "the property %s is not known")
	case *kind.DependentRequired:
		return eachViolation(e, k.Missing, "the property %s is missing, which "+shortQuote(k.Prop)+" needs")
	case *kind.Dependency:
		return eachViolation(e, k.Missing, "the property %s is missing, which "+shortQuote(k.Prop)+" needs")
	case *kind.AnyOf:
		return []violation{{e.InstanceLocation, "fits none of the allowed forms" + alternatives(e)}}
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return []violation{{e.InstanceLocation, "fits more than one of the allowed forms"}}
		}
		return []violation{{e.InstanceLocation, "fits none of the allowed forms" + alternatives(e)}}
	case nil, *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		var out []violation
		for _, c := range e.Causes {
			out = append(out, violations(c)...)
		}
		return out
	default:
		return []violation{{e.InstanceLocation, describe(e.ErrorKind)}}
	}
}

func eachViolation(e *jsonschema.ValidationError, names []string, format string) []violation {
	return run.Map(names, func(name string) violation {
		return violation{e.InstanceLocation, fmt.Sprintf(format, shortQuote(name))}
	})
}

// alternatives returns in brackets why each form did not fit.
func alternatives(e *jsonschema.ValidationError) string {
	var forms []string
	for _, c := range e.Causes {
		if len(forms) == maxAlternatives {
			forms = append(forms, "...")
			break
		}
		// Name a place if it differs from the alternative's own.
		var parts []string
		for _, v := range violations(c) {
			if slices.Equal(v.at, e.InstanceLocation) {
				parts = append(parts, v.text)
			} else {
				parts = append(parts, v.String())
			}
		}
		slices.Sort(parts)
		forms = append(forms, truncate(strings.Join(slices.Compact(parts), ", "), maxLineRunes))
	}
	if len(forms) == 0 {
		return ""
	}
	return " (" + strings.Join(forms, "; or ") + ")"
}

// describe returns the text of a violation that needs only its own numbers and names.
func describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters, has %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters, has %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items, has %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items, has %d", k.Want, k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d properties, has %d", k.Want, k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d properties, has %d", k.Want, k.Got)
	case *kind.AdditionalItems:
		return fmt.Sprintf("has %d items too many", k.Count)
	case *kind.UniqueItems:
		return fmt.Sprintf("items %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "lacks an item of the required form"
	case *kind.MinContains:
		return fmt.Sprintf("must have at least %d items of the required form, has %d", k.Want, len(k.Got))
	case *kind.MaxContains:
		return fmt.Sprintf("must have at most %d items of the required form, has %d", k.Want, len(k.Got))
	case *kind.Minimum:
		return fmt.Sprintf("must be at least %s, is %s", decimal(k.Want), decimal(k.Got))
	case *kind.Maximum:
		return fmt.Sprintf("must be at most %s, is %s", decimal(k.Want), decimal(k.Got))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("must be more than %s, is %s", decimal(k.Want), decimal(k.Got))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("must be less than %s, is %s", decimal(k.Want), decimal(k.Got))
	case *kind.MultipleOf:
		return fmt.Sprintf("must be a multiple of %s, is %s", decimal(k.Want), decimal(k.Got))
	case *kind.Type:
		return fmt.Sprintf("must be %s, is %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return "must be one of " + values(k.Want)
	case *kind.Const:
		return "must be " + value(k.Want)
	case *kind.Pattern:
		return fmt.Sprintf("%s does not match the pattern %s", shortQuote(k.Got), shortQuote(k.Want))
	case *kind.PropertyNames:
		return fmt.Sprintf("the property name %s is not allowed", shortQuote(k.Property))
	case *kind.Format: // only in a schema; formats of arguments are not checked
		return fmt.Sprintf("is not a valid %s: %v", k.Want, k.Err)
	case *kind.Not:
		return "has a form that is not allowed"
	case *kind.FalseSchema:
		return "is not allowed"
	default:
		return "does not fit the schema"
	}
}

// decimal returns r exactly. Every number in JSON has finitely many decimals.
func decimal(r *big.Rat) string {
	digits, _ := r.FloatPrec()
	return truncate(r.FloatString(digits), maxQuotedRunes)
}

func values(all []any) string {
	shown := all[:min(len(all), 4*maxAlternatives)]
	out := run.Map(shown, value)
	if len(shown) < len(all) {
		out = append(out, fmt.Sprintf("and %d more", len(all)-len(shown)))
	}
	return strings.Join(out, ", ")
}

func value(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "a value of the schema"
	}
	return truncate(string(b), maxQuotedRunes)
}

// pointer returns the JSON Pointer of a place with unprintable characters escaped; the top is "/".
func pointer(at []string) string {
	if len(at) == 0 {
		return "/"
	}
	return truncate(jsonx.FormatPointer(run.Map(at, plain)), 2*maxQuotedRunes)
}

// plain escapes a string that could break or disguise the line that contains it.
func plain(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

// Quoted returns a stranger's text for use in an error, cut and with unprintable characters escaped.
func Quoted(text string) string { return plain(truncate(text, maxQuotedRunes)) }

func shortQuote(s string) string { return strconv.Quote(truncate(s, maxQuotedRunes)) }

// truncate shortens s to n runes and marks the cut with three dots.
func truncate(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-3]) + "..."
}
