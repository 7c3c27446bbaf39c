package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

type address struct {
	Street string `json:"street" jsonschema_description:"with the number, please"`
	Zip    *int   `json:"zip,omitempty"`
}

type orderIn struct {
	ID      string         `json:"id" jsonschema:"pattern=^A-,description=the order"`
	Kind    string         `json:"kind,omitempty" jsonschema:"enum=full,enum=partial,default=full,required"`
	Amounts []float64      `json:"amounts,omitempty"`
	To      address        `json:"to"`
	Else    address        `json:"else,omitzero"`
	Any     any            `json:"any,omitempty"`
	Extra   map[string]int `json:"extra,omitempty"`
	Count   int8           `json:"count,omitempty"`
	Exact   json.Number    `json:"exact,omitempty" jsonschema:"exclusiveMinimum=0"`
	Skipped func()         `json:"-"`
}

func repeat[In any](_ context.Context, _ Call, in In) (agent.ToolResultData, error) { return JSON(in) }

func TestSchemaFromType(t *testing.T) {
	tl := Must(New("orders.get", "Gets an order.", "", repeat[orderIn], &Options[orderIn]{Timeout: time.Second, Priority: 2}))
	tl.Spec().Schema[0] = 'x' // of a copy
	spec := tl.Spec()
	schema := spec.Schema
	spec.Schema = nil
	require.Equal(t, agent.ToolSpec{Name: "orders.get", Kind: agent.KindInternal, Description: "Gets an order.",
		Effect: run.EffectNonIdempotent, Priority: 2, Timeout: time.Second}, spec)
	const address = `{"properties":{"street":{"type":"string","description":"with the number, please"},"zip":{"type":"integer"}},"additionalProperties":false,"type":"object","required":["street"]}`
	require.Equal(t, `{"properties":{`+
		`"id":{"type":"string","pattern":"^A-","description":"the order"},`+
		`"kind":{"type":"string","enum":["full","partial"],"default":"full"},`+
		`"amounts":{"items":{"type":"number"},"type":"array"},`+
		`"to":`+address+`,"else":`+address+`,"any":true,`+
		`"extra":{"additionalProperties":{"type":"integer"},"type":"object"},"count":{"type":"integer"},"exact":{"type":"number","exclusiveMinimum":0}`+
		`},"additionalProperties":false,"type":"object","required":["id","kind","to"]}`, string(schema))
}

type level int

func (l *level) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "L%d", l)
	return err
}

type cents struct{ n int64 }

func (c *cents) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &c.n) }

type described int

func (described) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean"} }
func (*described) UnmarshalText([]byte) error    { return nil }

// A type that reads its JSON itself has no fields to describe, or others than it reads.
func TestSchemaOfTypesThatReadThemselves(t *testing.T) {
	type in struct {
		Addr   netip.Addr      `json:"addr"`
		Levels []level         `json:"levels,omitempty" jsonschema:"minItems=1"`
		Sum    *big.Int        `json:"sum,omitempty" jsonschema_description:"of all"`
		Cents  cents           `json:"cents,omitzero"`
		At     time.Time       `json:"at,omitzero"`
		Wait   time.Duration   `json:"wait,omitzero"`
		Raw    json.RawMessage `json:"raw,omitempty"`
		Own    described       `json:"own,omitempty"`
		Count  uint            `json:"count,omitempty" jsonschema:"maximum=9"`
	}
	tl := Must(New("a", "d", run.EffectRead, func(_ context.Context, _ Call, in in) (agent.ToolResultData, error) {
		return Text(fmt.Sprint(in.Addr, in.Levels, in.Sum, in.Cents.n, in.Wait)), nil
	}, nil))
	require.Equal(t, `{"properties":{"addr":{"type":"string"},"levels":{"items":{"type":"string"},"type":"array","minItems":1},`+
		`"sum":{"description":"of all"},"cents":true,"at":{"type":"string","format":"date-time"},"wait":{"type":"integer","title":"nanoseconds"},`+
		`"raw":true,"own":{"type":"boolean"},"count":{"type":"integer","maximum":9,"minimum":0}},"additionalProperties":false,"type":"object","required":["addr"]}`, string(tl.Spec().Schema))
	r, err := tl.Call(t.Context(), Call{Args: json.RawMessage(`{"addr":"::1","levels":["L2"],"sum":123456789012345678901,"cents":7,"wait":5}`)})
	require.NoError(t, err)
	require.Equal(t, Text("::1 [2] 123456789012345678901 7 5ns"), r)
	r, err = tl.Call(t.Context(), Call{Args: json.RawMessage(`{"addr":"::1","count":-1}`)})
	require.NoError(t, err)
	require.Contains(t, r.Content, "at /count: must be at least 0, is -1")
}

type tree struct {
	Name     string `json:"name"`
	Children []tree `json:"children,omitempty"`
}

func TestRecursiveTypesAreNamed(t *testing.T) {
	tl := Must(New("plant", "Plants a tree.", run.EffectRead, repeat[tree], nil))
	require.Contains(t, string(tl.Spec().Schema), `"$ref":"#/$defs/tree"`)
	require.NotContains(t, string(tl.Spec().Schema)[:20], "$ref")
	r, err := tl.Call(t.Context(), Call{Args: json.RawMessage(`{"name":"a","children":[{"name":"b"}]}`)})
	require.NoError(t, err)
	require.Equal(t, Text(`{"name":"a","children":[{"name":"b"}]}`), r)
	r, err = tl.Call(t.Context(), Call{Args: json.RawMessage(`{"name":"a","children":[{"nome":"b"}]}`)})
	require.NoError(t, err)
	require.Equal(t, Errorf("The arguments of plant do not fit:\nat /children/0: the property \"name\" is missing\nat /children/0: the property \"nome\" is not known"), r)
}

type address2 = address

func TestEqualNamesAreToldApart(t *testing.T) {
	namer := typeNamer()
	type address struct{ X int }
	one, two := namer(reflect.TypeFor[address2]()), namer(reflect.TypeFor[address]())
	require.Equal(t, []string{"address", "address2", "address", "Options", ""},
		[]string{one, two, namer(reflect.TypeFor[address2]()), namer(reflect.TypeFor[Options[int]]()), namer(reflect.TypeFor[[]int]())})
}

func TestNewRefuses(t *testing.T) {
	type bad struct {
		C chan int `json:"c"`
	}
	type empty struct{}
	for name, tc := range map[string]struct {
		make func() (Tool, error)
		want string
	}{
		"name":        {func() (Tool, error) { return New("a b", "d", "", repeat[empty], nil) }, "name"},
		"long name":   {func() (Tool, error) { return New(fmt.Sprintf("%065d", 1), "d", "", repeat[empty], nil) }, "name"},
		"description": {func() (Tool, error) { return New("a", "", "", repeat[empty], nil) }, "no description"},
		"effect":      {func() (Tool, error) { return New("a", "d", "often", repeat[empty], nil) }, `effect "often"`},
		"timeout": {func() (Tool, error) {
			return New("a", "d", "", repeat[empty], &Options[empty]{Timeout: -1})
		}, "negative"},
		"function":     {func() (Tool, error) { return New[empty]("a", "d", "", nil, nil) }, "no function"},
		"not a struct": {func() (Tool, error) { return New("a", "d", "", repeat[[]string], nil) }, "not a struct"},
		"an interface": {func() (Tool, error) { return New("a", "d", "", repeat[any], nil) }, "not a struct"},
		"a URL": {func() (Tool, error) {
			return New("a", "d", "", repeat[struct{ Page *url.URL }], nil)
		}, "encoding/json reads no url.URL, want a string"},
		"a time":    {func() (Tool, error) { return New("a", "d", "", repeat[time.Time], nil) }, "type: object"},
		"a channel": {func() (Tool, error) { return New("a", "d", "", repeat[bad], nil) }, "unsupported type chan int"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.make()
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "make tool")
			require.Panics(t, func() { Must(tc.make()) })
		})
	}
}

func TestDecodeIsStrict(t *testing.T) {
	tl := Must(New("orders.get", "d", run.EffectRead, repeat[orderIn], nil))
	set, err := NewSet(tl)
	require.NoError(t, err)
	for args, want := range map[string]string{
		`{"id":"A-1","kind":"full","to":{"street":"x"},"any":12345678901234567890.10}`: `{"id":"A-1","kind":"full","to":{"street":"x"},"any":12345678901234567890.10}`,
		`{"ID":"A-1","kind":"full","to":{"street":"x"}}`:                               "at /: the property \"ID\" is not known\nat /: the property \"id\" is missing",
		`{"id":"A-1","kind":"full","to":{"street":"x"},"count":300}`:                   "at /count: the number 300 does not fit int8",
		`{"id":"A-1","kind":"full","to":{"street":"x","zip":1.0}}`:                     "at /to/zip: the number 1.0 does not fit int",
		`{"id":"A-1","kind":"full","to":{"street":"x","zip":null}}`:                    "at /to/zip: must be integer, is null",
	} {
		r, err := tl.Call(t.Context(), Call{Args: json.RawMessage(args)})
		require.NoError(t, err)
		require.Equal(t, want[0] != '{', r.IsError)
		wrong := Validator(set)(tl.Spec(), json.RawMessage(args))
		require.Equal(t, r.IsError, wrong != nil)
		if r.IsError {
			require.EqualError(t, wrong, want)
			want = "The arguments of orders_get do not fit:\n" + want
		}
		require.Equal(t, want, r.Content)
	}
}

func TestErrorsAndRefusals(t *testing.T) {
	type in struct{}
	broken := errors.New("disk on fire")
	for _, tc := range []struct {
		err  error
		want agent.ToolResultData
		out  error
	}{
		{nil, Text("ok"), nil},
		{broken, Text("ok"), broken},
		{fmt.Errorf("deep: %w", Refusef("no %s", "cigar")), Errorf("no cigar"), nil},
	} {
		tl := Must(New("a", "d", run.EffectRead, func(context.Context, Call, in) (agent.ToolResultData, error) { return Text("ok"), tc.err }, nil))
		r, err := tl.Call(t.Context(), Call{Args: json.RawMessage(`{}`)})
		require.Equal(t, tc.want, r)
		require.Equal(t, tc.out, err)
	}
}

func TestJSONResult(t *testing.T) {
	r, err := JSON(map[string]string{"a": "<&>"})
	require.NoError(t, err)
	require.Equal(t, Text(`{"a":"<&>"}`), r)
	_, err = JSON(make(chan int))
	require.ErrorContains(t, err, "encode tool result")
}

func TestReconcilerOnlyWhereThereIsOne(t *testing.T) {
	type in struct {
		A int `json:"a"`
	}
	_, ok := Must(New("a", "d", "", repeat[in], nil)).(Reconciler)
	require.False(t, ok)

	broken := errors.New("cannot look")
	for _, tc := range []struct {
		outcome Outcome
		err     error
		args    string
		want    Outcome
		content string
		fails   string
	}{
		{OutcomeDone, nil, `{"a":1}`, OutcomeDone, "1", ""},
		{OutcomeNotDone, nil, `{"a":1}`, OutcomeNotDone, "", ""},
		{OutcomeUnknown, nil, `{"a":1}`, OutcomeUnknown, "", ""},
		{OutcomeDone, broken, `{"a":1}`, OutcomeUnknown, "", "cannot look"},
		{"perhaps", nil, `{"a":1}`, OutcomeUnknown, "", `"perhaps" is not one of`},
		{OutcomeDone, nil, `{"b":1}`, OutcomeUnknown, "", "decode arguments"},
	} {
		tl := Must(New("a", "d", "", repeat[in], &Options[in]{Reconcile: func(_ context.Context, _ Call, in in) (Outcome, agent.ToolResultData, error) {
			return tc.outcome, Text(fmt.Sprint(in.A)), tc.err
		}}))
		outcome, r, err := tl.(Reconciler).Reconcile(t.Context(), Call{ID: "call1", Args: json.RawMessage(tc.args)})
		require.Equal(t, tc.want, outcome)
		require.Equal(t, tc.content, r.Content)
		if tc.fails == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.fails)
		require.ErrorContains(t, err, "call1")
	}
}

// What the typed tool accepts, the schema accepts, and the value it decodes survives the way back through JSON.
func FuzzTypedDecode(f *testing.F) {
	f.Add(`{"id":"A-1","kind":"full","to":{"street":"x"}}`)
	f.Add(`{"id":"A-1","kind":"full","to":{"street":"x","zip":-0},"amounts":[1e400],"any":{"a":[1.10]}}`)
	f.Add(`{"id":"A-1","kind":"full","to":{"street":"\ud800"},"count":128,"extra":{"a":1}}`)
	tl := Must(New("orders.get", "d", run.EffectRead, repeat[orderIn], nil))
	compiled, err := Compile(tl.Spec().Schema)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, args string) {
		r, err := tl.Call(t.Context(), Call{Args: json.RawMessage(args)})
		require.NoError(t, err)
		if r.IsError {
			return
		}
		require.NoError(t, compiled.Validate(json.RawMessage(args)))
		again, err := tl.Call(t.Context(), Call{Args: json.RawMessage(r.Content)})
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

// wrapped is what telemetry makes of a tool.
type wrapped struct{ Tool }

func (w wrapped) Unwrap() Tool { return w.Tool }

func TestDescribe(t *testing.T) {
	describe := func(in tree) string {
		if in.Name == "" {
			panic("no name")
		}
		return " Plant " + in.Name + "\xff.\n"
	}
	plant := Must(New("plant", "Plants a tree.", run.EffectRead, repeat[tree], &Options[tree]{Describe: describe}))
	for _, one := range []Tool{plant, wrapped{wrapped{plant}}} {
		require.Equal(t, "Plant an oak\uFFFD.", Describe(one, json.RawMessage(`{"name":"an oak"}`)))
		require.Empty(t, Describe(one, json.RawMessage(`{"name":""}`)), "a panic is no sentence")
		require.Empty(t, Describe(one, json.RawMessage(`{"name":7}`)), "masked arguments may not decode")
	}
	require.Empty(t, Describe(Must(New("plant", "Plants a tree.", run.EffectRead, repeat[tree], nil)), json.RawMessage(`{"name":"x"}`)))
}
