package tool

// This file checks values against JSON Schema 2020-12, exactly and within bounds: schemas and values alike may
// come from strangers.

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// What a schema and the arguments checked against it may measure. Schemas come from MCP servers too and are not trusted
// (reliability.md R14); arguments come from a model (R13).
const (
	maxSchemaBytes  = 64 << 10
	maxSchemaDepth  = 32
	maxSchemaValues = 8192

	maxArgsBytes = 256 << 10
	maxArgsDepth = 64
)

// schemaURL is the name a schema is compiled under. Nothing is ever fetched; .invalid makes sure of it (RFC 2606).
const schemaURL = "https://schema.invalid/tool"

// Schema is a compiled JSON Schema of a tool's arguments. It is safe for concurrent use; checks against one Schema run
// one after the other.
type Schema struct {
	mu    sync.Mutex // the meter belongs to one check at a time
	meter *meter
	root  *jsonschema.Schema
}

// Compile compiles a JSON Schema, draft 2020-12 unless it names another draft with $schema. Formats are annotations in
// every draft. Equal bytes usually return the same *Schema: a bounded cache stands in front, safe for concurrent use.
//
// It refuses a schema over 64 KiB, 32 levels or 8192 values; one that is invalid, names anything outside itself, has
// $dynamicRef or $recursiveRef, a $ref that leads in a circle without descending into the arguments, or a pattern RE2
// does not know or that is too large.
func Compile(raw json.RawMessage) (*Schema, error) {
	return schemas.get(raw, compileSchema)
}

func compileSchema(raw []byte) (*Schema, error) {
	x := exactJSON{maxBytes: maxSchemaBytes, maxDepth: maxSchemaDepth, maxValues: maxSchemaValues}
	doc, err := x.decode(raw)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	m := &meter{left: checkBudget}
	root, err := compiler(m, doc)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	if err := m.install(root); err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &Schema{meter: m, root: root}, nil
}

// compiler compiles doc with nothing to load from and metered patterns.
func compiler(m *meter, doc any) (*jsonschema.Schema, error) {
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
	return root, err
}

// noLoader refuses every document but the schema itself.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("a tool's schema must not name documents outside itself")
}

// Validate checks arguments: nil, or an error whose text is meant for the model that wrote them, a line a violation in
// the form `at /amount: must be at most 100, is 120`, sorted, at most 20 lines and about 4 KiB. Numbers are compared
// exactly. Arguments over 256 KiB or 64 levels, with a key twice in one object, or that cost too much to check are
// refused as well.
func (s *Schema) Validate(args json.RawMessage) error {
	x := exactJSON{maxBytes: maxArgsBytes, maxDepth: maxArgsDepth, maxValues: maxArgsBytes}
	doc, err := x.decode(args)
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
	var invalid *jsonschema.ValidationError
	if errors.As(err, &invalid) {
		return errors.New(report(invalid))
	}
	return err
}

// Validate checks arguments against a tool's schema. It is an agent.Validator; its error is Schema.Validate's, or says
// that the schema itself cannot be used.
func Validate(t agent.ToolSpec, args json.RawMessage) error {
	s, err := Compile(t.Schema)
	if err != nil {
		return &policy.SchemaError{Tool: t.ModelName(), Err: err}
	}
	return s.Validate(args)
}

// Fits makes the check of a schema of any value: a runtime.Schemas. Its errors are Compile's, those of the check
// Schema.Validate's.
func Fits(schema json.RawMessage) (func(value json.RawMessage) error, error) {
	s, err := Compile(schema)
	if err != nil {
		return nil, err
	}
	return s.Validate, nil
}

// ObjectOnly reports whether the schema says type: object at its top, and nothing else.
func (s *Schema) ObjectOnly() bool {
	if s.root.Types == nil {
		return false
	}
	types := s.root.Types.ToStrings()
	return len(types) == 1 && types[0] == "object"
}

// Bounds of a number in JSON we accept. They keep exact arithmetic cheap: 1e999999999 would be a gigabyte.
const (
	maxNumberBytes    = 256
	maxNumberExponent = 400
)

// exactJSON reads JSON that is checked or acted upon (reliability.md R13): duplicate keys, invalid UTF-8 and trailing
// data are refused, numbers keep their digits. Its errors are fit for a model.
type exactJSON struct {
	maxBytes, maxDepth, maxValues int

	dec    *json.Decoder
	values int
}

// decode returns map[string]any, []any, string, json.Number, bool or nil.
func (x *exactJSON) decode(raw []byte) (any, error) {
	if len(raw) > x.maxBytes {
		return nil, fmt.Errorf("%d bytes of JSON, at most %d are read", len(raw), x.maxBytes)
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("the JSON is not UTF-8")
	}
	var whole json.RawMessage // exactly one JSON value
	if err := json.Unmarshal(raw, &whole); err != nil {
		var syntax *json.SyntaxError
		switch {
		case len(bytes.TrimSpace(raw)) == 0:
			return nil, errors.New("there is no JSON, give an object such as {}")
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("not valid JSON at byte %d", syntax.Offset)
		default:
			return nil, errors.New("not valid JSON")
		}
	}
	x.dec = json.NewDecoder(bytes.NewReader(raw))
	x.dec.UseNumber()
	return x.value(1)
}

// value reads the next value; depth counts the containers around it, itself included.
func (x *exactJSON) value(depth int) (any, error) {
	if x.values++; x.values > x.maxValues {
		return nil, fmt.Errorf("more than %d values", x.maxValues)
	}
	tok, err := x.dec.Token()
	if err != nil {
		return nil, errors.New("not valid JSON")
	}
	switch t := tok.(type) {
	case json.Delim:
		if depth > x.maxDepth {
			return nil, fmt.Errorf("nested deeper than %d levels", x.maxDepth)
		}
		if t == '{' {
			return x.object(depth)
		}
		arr := []any{}
		for x.dec.More() {
			v, err := x.value(depth + 1)
			if err != nil {
				return nil, err
			}
			arr = append(arr, v)
		}
		return arr, x.end()
	case json.Number:
		return t, checkNumber(t)
	default:
		return tok, nil
	}
}

func (x *exactJSON) object(depth int) (any, error) {
	obj := map[string]any{}
	for x.dec.More() {
		tok, err := x.dec.Token()
		key, ok := tok.(string)
		if err != nil || !ok {
			return nil, errors.New("not valid JSON")
		}
		if _, twice := obj[key]; twice {
			return nil, fmt.Errorf("the key %s is given twice in one object", shortQuote(key))
		}
		if obj[key], err = x.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return obj, x.end()
}

// end takes the closing bracket.
func (x *exactJSON) end() error {
	if _, err := x.dec.Token(); err != nil {
		return errors.New("not valid JSON")
	}
	return nil
}

// checkNumber refuses numbers too long or too large for exact arithmetic.
func checkNumber(n json.Number) error {
	if len(n) > maxNumberBytes {
		return fmt.Errorf("a number of %d characters, at most %d are read", len(n), maxNumberBytes)
	}
	_, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e")
	if !ok {
		return nil
	}
	if e, err := strconv.Atoi(exponent); err != nil || e > maxNumberExponent || e < -maxNumberExponent {
		return fmt.Errorf("the number %s is out of range", n)
	}
	return nil
}

// schemaCacheSize is how many compiled schemas are kept: more than a definition has tools.
const schemaCacheSize = 256

// schemas is the cache in front of Compile. Losing it costs time, nothing else.
var schemas = schemaCache{byDigest: map[[sha256.Size]byte]*Schema{}}

// schemaCache keeps the schemas compiled last, the oldest making room. It is safe for concurrent use.
type schemaCache struct {
	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]*Schema
	order    [][sha256.Size]byte // oldest first
}

// get returns the schema of these bytes, compiling it if it is not kept. Errors are not kept.
func (c *schemaCache) get(raw []byte, compile func([]byte) (*Schema, error)) (*Schema, error) {
	digest := sha256.Sum256(raw)
	c.mu.Lock()
	kept := c.byDigest[digest]
	c.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	s, err := compile(raw) // outside the lock: a slow schema holds up nobody else
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.byDigest[digest]; ok { // another goroutine compiled the same bytes meanwhile
		return first, nil
	}
	if len(c.order) == schemaCacheSize {
		delete(c.byDigest, c.order[0])
		c.order = c.order[1:]
	}
	c.byDigest[digest] = s
	c.order = append(c.order, digest)
	return s, nil
}
