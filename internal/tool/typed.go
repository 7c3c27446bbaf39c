package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Options are the optional parts of a typed tool. nil and the zero value are valid.
type Options[In any] struct {
	Timeout  time.Duration // of one call; 0 = the runtime's default
	Priority int           // higher runs first if a batch is cut short; default 0

	// Describe returns one sentence that says what a call would do, for approvers; see Describer. nil = approvers see the
	// call itself. It must be fast and have no effect.
	Describe func(in In) string

	// Reconcile returns the outcome of a call whose process died, that timed out or whose answer was lost; see
	// Reconciler. After OutcomeNotDone the call runs again only if its process died; else a person decides, because the
	// attempt may still be under way. It has the tool's timeout; an error, a panic and its end are OutcomeUnknown. nil =
	// the tool does not know outcomes.
	Reconcile func(ctx context.Context, c Call, in In) (Outcome, agent.ToolResultData, error)
}

// New makes a tool of a Go function. The schema is derived from In, a struct, by its json tags (without omitempty or
// omitzero a property is required) and the jsonschema and jsonschema_description tags of
// github.com/invopop/jsonschema. Unknown properties are refused. Package pkg/agent has an example.
//
// Arguments are checked against the schema and then decoded. If they do not fit, the result is an error and f is not
// called. A number in an interface field is a json.Number. f may be called concurrently. An error of f is an
// infrastructure error; a LostError leaves open whether the call happened; a Refusal becomes an error result. The zero
// effect is run.EffectNonIdempotent. The tool is a Reconciler if, and only if, opts.Reconcile is set.
//
// New returns an error for a name that some provider refuses, an empty description, an unknown effect, a negative
// timeout, a nil f, or an In without an object schema.
func New[In any](
	name, description string, effect run.Effect, f func(context.Context, Call, In) (agent.ToolResultData, error),
	opts *Options[In],
) (Tool, error) {
	opts = cmp.Or(opts, &Options[In]{})
	if f == nil {
		return nil, fmt.Errorf("make tool %q: no function", name)
	}
	raw, err := deriveSchema(reflect.TypeFor[In]())
	if err != nil {
		return nil, fmt.Errorf("make tool %q: %w", name, err)
	}
	t := &typed[In]{run: f, describe: opts.Describe, spec: agent.ToolSpec{
		Name: name, Kind: agent.KindInternal, Description: description, Schema: raw,
		Effect: cmp.Or(effect, run.EffectNonIdempotent), Priority: opts.Priority, Timeout: opts.Timeout,
	}}
	if t.schema, err = checkSpec(t.spec); err != nil {
		return nil, fmt.Errorf("make tool %q: %w", name, err)
	}
	if opts.Reconcile == nil {
		return t, nil
	}
	return &reconciling[In]{typed: t, reconcile: opts.Reconcile}, nil
}

// Must returns t and panics if err is not nil. It is for tools that are made when a program starts.
func Must(t Tool, err error) Tool {
	if err != nil {
		panic(err)
	}
	return t
}

// checkSpec refuses a spec that no run could use, and returns its compiled schema.
func checkSpec(s agent.ToolSpec) (*Schema, error) {
	switch {
	case !agent.ValidWord(s.ModelName()): // every provider accepts these (reliability.md R14)
		return nil, fmt.Errorf("the name must be 1 to 64 of A-Z a-z 0-9 _ - and dots")
	case s.Description == "":
		return nil, errors.New("no description")
	case s.Effect != "" && !s.Effect.Valid():
		return nil, fmt.Errorf("effect %q is not one of read, idempotent, non_idempotent", s.Effect)
	case s.Timeout < 0:
		return nil, fmt.Errorf("timeout %s is negative", s.Timeout)
	}
	compiled, err := Compile(s.Schema)
	if err == nil && !compiled.ObjectOnly() {
		err = errors.New("the schema of a tool's arguments must say type: object")
	}
	return compiled, err
}

type typed[In any] struct {
	spec   agent.ToolSpec
	schema *Schema
	run    func(context.Context, Call, In) (agent.ToolResultData, error)

	describe func(In) string // nil = the tool describes no calls
}

// Describe calls the tool's own function. It returns "" for masked arguments that cannot be decoded.
func (t *typed[In]) Describe(args json.RawMessage) string {
	if t.describe == nil {
		return ""
	}
	in, err := t.decode(args)
	if err != nil {
		return ""
	}
	return t.describe(in)
}

// Spec returns a copy of the spec.
func (t *typed[In]) Spec() agent.ToolSpec {
	s := t.spec
	s.Schema = bytes.Clone(s.Schema)
	return s
}

// Call checks and decodes the arguments, and runs the tool's function.
func (t *typed[In]) Call(ctx context.Context, c Call) (agent.ToolResultData, error) {
	in, err := t.decode(c.Args)
	if err != nil {
		return Errorf("The arguments of %s do not fit:\n%s", t.spec.ModelName(), err), nil
	}
	result, err := t.run(ctx, c, in)
	if refused, ok := errors.AsType[Refusal](err); ok {
		return Errorf("%s", refused), nil
	}
	return result, err
}

// Validator returns Validate that also asks a tool's Go type, which takes less than its schema: RFC 3339 for a time.
func Validator(tools interface {
	Lookup(name string) (Tool, bool)
}) agent.Validator {
	return func(spec agent.ToolSpec, args json.RawMessage) error {
		if err := Validate(spec, args); err != nil {
			return err
		}
		t, _ := tools.Lookup(spec.Name)
		typed, ok := t.(interface {
			fits(args json.RawMessage) error
		})
		if !ok || !bytes.Equal(spec.Schema, t.Spec().Schema) { // of another version, or what a model is told of it
			return nil
		}
		return typed.fits(args)
	}
}

func (t *typed[In]) fits(args json.RawMessage) error {
	_, err := t.decode(args)
	return err
}

// decode decodes arguments strictly. The schema check comes first, because encoding/json alone accepts keys in any
// case, duplicate keys and missing ones. The errors are meant for the model.
func (t *typed[In]) decode(args json.RawMessage) (in In, err error) {
	defer func() { // of an In's own UnmarshalJSON
		if recover() != nil {
			err = errors.New("decoding them panicked")
		}
	}()
	if err = t.schema.Validate(args); err != nil {
		return in, err
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	err = dec.Decode(&in)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return in, fmt.Errorf("at /%s: the %s does not fit %s", strings.ReplaceAll(mismatch.Field, ".", "/"),
			Quoted(mismatch.Value), mismatch.Type.Kind())
	}
	return in, err
}

// reconciling is a typed tool that knows the outcome of a call.
type reconciling[In any] struct {
	*typed[In]
	reconcile func(context.Context, Call, In) (Outcome, agent.ToolResultData, error)
}

// Reconcile calls the tool's own function. The outcome is OutcomeUnknown with an error, and a person decides, if the
// arguments can no longer be decoded, if the function fails, or if it returns an invalid outcome.
func (t *reconciling[In]) Reconcile(ctx context.Context, c Call) (Outcome, agent.ToolResultData, error) {
	var outcome Outcome
	var result agent.ToolResultData
	in, err := t.decode(c.Args)
	if err != nil {
		err = fmt.Errorf("decode arguments: %w", err)
	} else {
		outcome, result, err = t.reconcile(ctx, c, in)
	}
	switch {
	case err != nil:
	case outcome == OutcomeDone:
		return outcome, result, nil
	case outcome == OutcomeNotDone || outcome == OutcomeUnknown:
		return outcome, agent.ToolResultData{}, nil
	default:
		err = fmt.Errorf("outcome %q is not one of done, not_done, unknown", outcome)
	}
	return OutcomeUnknown, agent.ToolResultData{}, fmt.Errorf("reconcile call %s of %s: %w", c.ID, t.spec.Name, err)
}

// deriveSchema returns the JSON Schema of a struct's JSON form. Types of fields are inlined; only recursive types are
// named under $defs. The reflector panics on types without a JSON form; here that is an error.
func deriveSchema(t reflect.Type) (raw json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			raw, err = nil, fmt.Errorf("derive schema of %s: %w", t, err)
		}
	}()
	if t.Kind() != reflect.Struct {
		return nil, errors.New("it is not a struct")
	}
	r := jsonschema.Reflector{
		Anonymous: true, DoNotReference: !isRecursive(t, nil), Namer: typeNamer(), Mapper: schemaOfJSON,
	}
	s := r.ReflectFromType(t)
	s.Version = "" // the contract fixes the version: 2020-12
	if raw, err = json.Marshal(s); err != nil {
		return nil, err
	}
	return liftRef(raw)
}

// schemaOfJSON returns the schema of a type that encoding/json reads otherwise than by its kind or fields, or nil.
// It panics for one that encoding/json does not read.
func schemaOfJSON(t reflect.Type) *jsonschema.Schema {
	switch p := reflect.PointerTo(t); {
	case t == reflect.TypeFor[json.Number]():
		return &jsonschema.Schema{Type: "number"}
	case t == reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{Type: "integer", Title: "nanoseconds"}
	case t == reflect.TypeFor[url.URL]():
		panic("encoding/json reads no url.URL, want a string")
	case t == reflect.TypeFor[time.Time](), // what the reflector knows, or is told
		t.Implements(reflect.TypeFor[interface{ JSONSchema() *jsonschema.Schema }]()),
		t.Implements(reflect.TypeFor[interface{ JSONSchemaExtend(*jsonschema.Schema) }]()):
		return nil
	case p.Implements(reflect.TypeFor[json.Unmarshaler]()):
		hasFields := t.Kind() == reflect.Struct &&
			slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.IsExported() })
		if t.Kind() == reflect.String || hasFields {
			return nil // it is taken to read what it looks like
		}
		return &jsonschema.Schema{}
	case p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &jsonschema.Schema{Type: "string"}
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr:
		return &jsonschema.Schema{Type: "integer", Minimum: "0"}
	}
	return nil
}

// isRecursive reports whether t contains itself through exported fields, elements or pointers.
func isRecursive(t reflect.Type, path []reflect.Type) bool {
	if slices.Contains(path, t) {
		return true
	}
	path = append(slices.Clip(path), t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return isRecursive(t.Elem(), path)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && isRecursive(f.Type, path) {
				return true
			}
		}
	}
	return false
}

// typeNamer returns a function that gives every named type a unique name. The reflector alone would confuse equal names
// of two packages.
func typeNamer() func(reflect.Type) string {
	names := map[reflect.Type]string{}
	return func(t reflect.Type) string {
		if name, ok := names[t]; ok || t.Name() == "" {
			return name
		}
		base, _, _ := strings.Cut(t.Name(), "[") // without type parameters
		name := base
		for n := 2; slices.Contains(slices.Collect(maps.Values(names)), name); n++ {
			name = base + strconv.Itoa(n)
		}
		names[t] = name
		return name
	}
}

// liftRef moves the definition that a top-level $ref names to the top, because a tool's schema has to be an object
// schema.
func liftRef(raw json.RawMessage) (json.RawMessage, error) {
	var top struct {
		Ref  string                     `json:"$ref"`
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(raw, &top); err != nil || top.Ref == "" {
		return raw, err
	}
	definition, ok := top.Defs[strings.TrimPrefix(top.Ref, "#/$defs/")]
	if !ok {
		return nil, errors.New("the type has no definition of its own")
	}
	var lifted map[string]json.RawMessage
	if err := json.Unmarshal(definition, &lifted); err != nil {
		return nil, err
	}
	defs, err := json.Marshal(top.Defs)
	if err != nil {
		return nil, err
	}
	lifted["$defs"] = defs
	return json.Marshal(lifted)
}
