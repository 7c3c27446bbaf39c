package tool

// This file checks values against JSON Schema 2020-12, exactly and within limits, because both may come from strangers.

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

// Limits for a schema and for arguments. Schemas also come from MCP servers and are not trusted (reliability.md R14).
// Arguments come from a model (R13).
const (
	maxSchemaBytes  = 64 << 10
	maxSchemaDepth  = 32
	maxSchemaValues = 8192

	maxArgsBytes = 256 << 10
	maxArgsDepth = 64
)

// schemaURL is the name under which a schema is compiled. .invalid makes sure that nothing is fetched (RFC 2606).
const schemaURL = "https://schema.invalid/tool"

// Schema is a compiled JSON Schema of a tool's arguments. It is safe for concurrent use, but checks against one Schema
// run one after the other.
type Schema struct {
	mu    sync.Mutex // one check at a time uses the meter
	meter *meter
	root  *jsonschema.Schema
}

// Compile compiles a JSON Schema, draft 2020-12 unless $schema names another draft. Formats are annotations in every
// draft. Equal bytes usually return the same *Schema. Safe for concurrent use.
//
// It refuses a schema over 64 KiB, 32 levels or 8192 values. It also refuses an invalid schema, a reference outside
// itself, $dynamicRef and $recursiveRef, a $ref that leads in a circle without descending into the arguments, and a
// pattern that RE2 does not support or that is too large.
func Compile(raw json.RawMessage) (*Schema, error) {
	digest := sha256.Sum256(raw)
	schemas.Lock()
	cached := schemas.byDigest[digest]
	schemas.Unlock()
	if cached != nil {
		return cached, nil
	}
	s, err := compileSchema(raw) // outside the lock, so that a slow schema does not block others
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	schemas.Lock()
	defer schemas.Unlock()
	if len(schemas.byDigest) == maxSchemas {
		clear(schemas.byDigest)
	}
	schemas.byDigest[digest] = s
	return s, nil
}

// compileSchema compiles a schema with a meter and without a loader.
func compileSchema(raw []byte) (*Schema, error) {
	doc, err := decodeExact(raw, jsonx.JSONLimits{Bytes: maxSchemaBytes, Depth: maxSchemaDepth}, maxSchemaValues)
	if err != nil {
		return nil, err
	}
	m := &meter{left: checkBudget}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(m.pattern)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	root, err := c.Compile(schemaURL)
	var invalid *jsonschema.SchemaValidationError
	var detail *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &detail) {
		return nil, errors.New("not a valid JSON Schema: " + report(detail))
	}
	if err == nil {
		err = m.install(root)
	}
	return &Schema{meter: m, root: root}, err
}

// noLoader refuses to load any document.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a schema must not name documents outside itself")
}

// Validate checks arguments. It returns nil, or an error whose text is meant for the model that wrote them: one line
// for each violation in the form `at /amount: must be at most 100, is 120`, sorted, at most 20 lines and about 4 KiB.
// Numbers are compared exactly. It also refuses arguments over 256 KiB or 64 levels, with a duplicate key, or that cost
// too much to check.
func (s *Schema) Validate(args json.RawMessage) error {
	doc, err := decodeExact(args, jsonx.JSONLimits{Bytes: maxArgsBytes, Depth: maxArgsDepth}, maxArgsBytes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.left = checkBudget
	err = s.root.Validate(doc)
	if s.meter.isSpent() {
		return errors.New("the arguments are too large or too deeply nested to be checked, give fewer or simpler ones")
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return errors.New(report(invalid))
	}
	return err
}

// Validate checks arguments against a tool's schema. It is an agent.Validator. Its error is that of Schema.Validate, or
// says that the schema itself is unusable.
func Validate(t agent.ToolSpec, args json.RawMessage) error {
	s, err := Compile(t.Schema)
	if err != nil {
		return &policy.SchemaError{Tool: t.ModelName(), Err: err}
	}
	return s.Validate(args)
}

// Fits compiles a schema of any value to a check, as a runtime.Schemas. Its errors are those of Compile, the check's
// those of Schema.Validate.
func Fits(schema json.RawMessage) (func(value json.RawMessage) error, error) {
	s, err := Compile(schema)
	if err != nil {
		return nil, err
	}
	return s.Validate, nil
}

// ObjectOnly reports whether the schema has exactly type: object at its top.
func (s *Schema) ObjectOnly() bool {
	return s.root.Types != nil && slices.Equal(s.root.Types.ToStrings(), []string{"object"})
}

// Limits for a number in JSON. They keep exact arithmetic cheap: 1e999999999 would take a gigabyte.
const (
	maxNumberBytes    = 256
	maxNumberExponent = 400
)

// decodeExact decodes JSON that is checked or acted on (reliability.md R13). It refuses what jsonx.CompactJSON refuses,
// and keeps the digits of numbers. A model may see its errors.
func decodeExact(raw []byte, lim jsonx.JSONLimits, maxValues int) (any, error) {
	compact, err := jsonx.CompactJSON(raw, lim)
	if err != nil {
		return nil, err
	}
	doc, err := jsonx.DecodeNumbers(compact)
	if err != nil {
		return nil, err
	}
	left := maxValues
	return doc, checkValues(doc, &left, maxValues)
}

// checkValues refuses numbers that are too long or too large for exact arithmetic, and too many values.
func checkValues(v any, left *int, most int) error {
	if *left--; *left < 0 {
		return fmt.Errorf("more than %d values", most)
	}
	var all []any
	switch v := v.(type) {
	case []any:
		all = v
	case map[string]any:
		all = slices.Collect(maps.Values(v))
	case json.Number:
		if len(v) > maxNumberBytes {
			return fmt.Errorf("a number of %d characters, at most %d are read", len(v), maxNumberBytes)
		}
		_, exponent, ok := strings.Cut(strings.ToLower(string(v)), "e")
		if e, err := strconv.Atoi(exponent); ok && (err != nil || e > maxNumberExponent || e < -maxNumberExponent) {
			return fmt.Errorf("the number %s is out of range", v)
		}
	}
	for _, one := range all {
		if err := checkValues(one, left, most); err != nil {
			return err
		}
	}
	return nil
}

// maxSchemas is how many compiled schemas are cached: more than a definition has tools.
const maxSchemas = 256

// schemas caches compiled schemas by the digest of their bytes.
var schemas = struct {
	sync.Mutex
	byDigest map[[sha256.Size]byte]*Schema
}{byDigest: map[[sha256.Size]byte]*Schema{}}

// Limits of one check. The budget allows every sensible schema to check 256 KiB of arguments, and stops a hostile one
// (references that double at each level) after a fraction of a second.
const (
	checkBudget     = 500_000
	bytesPerUnit    = 64 // bytes of compared text, or of pattern instructions times text
	maxPatternBytes = 1024
	maxPatternInsts = 10_000 // instructions of the compiled pattern
)

var errSpent = errors.New("budget spent")

// meter limits the work of one check. Every subschema pays on entry for itself and for the visits it will cause. Once
// the budget is spent, every further visit ends at once, and the result is ignored.
type meter struct{ left int }

func (m *meter) isSpent() bool { return m.left < 0 }

func (m *meter) pay(units int) error {
	if m.left >= 0 {
		m.left -= units
	}
	if m.isSpent() {
		return errSpent
	}
	return nil
}

// install adds the meter to every schema reachable from root. The library calls a schema's format on every visit before
// it descends. Formats are annotations here, so this hook is free. It refuses schemas that cannot be metered.
func (m *meter) install(root *jsonschema.Schema) error {
	// List root and every schema below it, each once.
	seen := map[*jsonschema.Schema]bool{root: true}
	all := []*jsonschema.Schema{root}
	for i := 0; i < len(all); i++ {
		for _, s := range slices.Concat(inPlace(all[i]), named(all[i]), elements(all[i])) {
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		}
	}
	for _, s := range all {
		if s.DynamicRef != nil || s.RecursiveRef != nil {
			return errors.New("$dynamicRef and $recursiveRef are not supported in a tool's schema")
		}
	}
	if isCircular(all) {
		return errors.New("a $ref leads in a circle")
	}
	for _, s := range all {
		once, each := 1, 0 // cost of a visit: for s itself and its alternatives, and for each element of the value
		for _, c := range append(inPlace(s), named(s)...) {
			once += weight(c)
		}
		for _, c := range elements(s) {
			each += weight(c)
		}
		s.Format = &jsonschema.Format{Name: "checked", Validate: func(v any) error {
			switch v := v.(type) {
			case map[string]any:
				return m.pay(once + each*len(v))
			case []any:
				return m.pay(once + (each+1)*len(v))
			case string:
				return m.pay(once + len(v)/bytesPerUnit)
			default:
				return m.pay(once)
			}
		}}
	}
	return nil
}

// weight returns the work in a schema before its own meter is called: comparing the enum.
func weight(s *jsonschema.Schema) int {
	if s.Enum == nil {
		return 1
	}
	return 1 + len(s.Enum.Values)
}

// pattern is the regular expression engine: RE2, linear in the text, with its compiled size limited and metered.
func (m *meter) pattern(expr string) (jsonschema.Regexp, error) {
	size, err := patternSize(expr)
	if err != nil {
		return nil, err
	}
	return &meteredPattern{Regexp: regexp.MustCompile(expr), size: size, meter: m}, nil // it was parsed above
}

// patternSize returns how many instructions a pattern has. It refuses one that RE2 does not support, or too large.
func patternSize(expr string) (int, error) {
	if len(expr) > maxPatternBytes {
		return 0, fmt.Errorf("a pattern of %d bytes, at most %d are read", len(expr), maxPatternBytes)
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err == nil && len(prog.Inst) > maxPatternInsts {
		err = fmt.Errorf("the pattern compiles to %d instructions, at most %d are run", len(prog.Inst), maxPatternInsts)
	}
	if err != nil {
		return 0, err
	}
	return len(prog.Inst), nil
}

// DropPatterns removes from a decoded schema of somebody else's the patterns that Compile would refuse, such as
// lookahead: whoever carries the call out checks them. Within not and if they stay, where without them a schema would
// allow less. It reports whether there were any.
func DropPatterns(schema any) (dropped bool) {
	var each []any
	switch v := schema.(type) {
	case []any:
		each = v
	case map[string]any:
		if expr, ok := v["pattern"].(string); ok {
			if _, err := patternSize(expr); err != nil {
				delete(v, "pattern")
				dropped = true
			}
		}
		for key, child := range v {
			if !slices.Contains([]string{"not", "if", "const", "enum", "default", "examples"}, key) {
				each = append(each, child)
			}
		}
	}
	for _, child := range each {
		dropped = DropPatterns(child) || dropped
	}
	return dropped
}

// meteredPattern pays for the text that it is matched against.
type meteredPattern struct {
	*regexp.Regexp
	size  int
	meter *meter
}

func (p *meteredPattern) MatchString(s string) bool {
	return p.meter.pay(1+p.size*len(s)/bytesPerUnit) == nil && p.Regexp.MatchString(s)
}

// inPlace returns the schemas that s applies to the same value.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	out := nonNil(s.Ref, s.Not, s.If, s.Then, s.Else)
	out = append(out, slices.Concat(s.AllOf, s.AnyOf, s.OneOf)...)
	out = slices.AppendSeq(out, maps.Values(s.DependentSchemas))
	for _, d := range s.Dependencies {
		out = appendSchema(out, d)
	}
	return out
}

// named returns the schemas that s applies to one property or item each.
func named(s *jsonschema.Schema) []*jsonschema.Schema {
	out := slices.Concat(slices.Collect(maps.Values(s.Properties)), s.PrefixItems)
	if items, ok := s.Items.([]*jsonschema.Schema); ok {
		out = append(out, items...)
	}
	return out
}

// elements returns the schemas that s applies to any number of properties, their names, or items.
func elements(s *jsonschema.Schema) []*jsonschema.Schema {
	out := nonNil(s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems)
	out = slices.AppendSeq(out, maps.Values(s.PatternProperties))
	for _, either := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		out = appendSchema(out, either)
	}
	return out
}

func nonNil(all ...*jsonschema.Schema) []*jsonschema.Schema {
	return slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return s == nil })
}

// appendSchema appends v if the library's any is a schema.
func appendSchema(out []*jsonschema.Schema, v any) []*jsonschema.Schema {
	if s, ok := v.(*jsonschema.Schema); ok {
		return append(out, s)
	}
	return out
}

// isCircular reports whether a schema applies itself to the same value, directly or indirectly. Validation would never
// end.
func isCircular(all []*jsonschema.Schema) bool {
	const open, done = 1, 2
	state := map[*jsonschema.Schema]int{}
	var visit func(*jsonschema.Schema) bool
	visit = func(s *jsonschema.Schema) bool {
		if state[s] != 0 {
			return state[s] == open
		}
		state[s] = open
		defer func() { state[s] = done }()
		return slices.ContainsFunc(inPlace(s), visit)
	}
	return slices.ContainsFunc(all, visit)
}
