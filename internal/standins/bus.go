package standins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// Bus is an event bus. It speaks the wire protocol of PutEvents, awsJson1.1, and delivers each event to the target of
// every rule whose pattern it fits, at least once. Safe for concurrent use once it is made.
type Bus struct {
	Rules []Rule
	Clock clock.Clock
	// Deliveries is how often each event comes to a target; 0 = once.
	Deliveries int

	count   atomic.Int64
	mu      sync.Mutex
	refused []error
}

// Rule is a rule with one target.
type Rule struct {
	Name    string
	Pattern json.RawMessage
	Input   *InputTransformer // nil = the event as it is
	// Target takes a delivery; id is different each time.
	Target func(ctx context.Context, id string, input []byte) error
}

// InputTransformer makes a target's input of an event.
type InputTransformer struct {
	Paths    map[string]string // name -> $.path
	Template string            // <name> stands for what is at its path
}

// Undelivered are the deliveries that a target refused or that no input could be made for: what a dead-letter queue
// would hold.
func (b *Bus) Undelivered() []error { return snapshot(&b.mu, &b.refused) }

// ServeHTTP takes PutEvents.
func (b *Bus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	var in struct {
		Entries []struct {
			Source, DetailType, Detail, EventBusName string
			Resources                                []string
		}
	}
	if target := r.Header.Get("X-Amz-Target"); target != "AWSEvents.PutEvents" {
		refuseRPC(w, "UnknownOperationException", target)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuseRPC(w, "SerializationException", err.Error())
		return
	}
	type entry struct {
		EventID      string `json:"EventId,omitempty"`
		ErrorCode    string `json:",omitempty"`
		ErrorMessage string `json:",omitempty"`
	}
	var out struct {
		FailedEntryCount int
		Entries          []entry
	}
	for _, e := range in.Entries {
		if !json.Valid([]byte(e.Detail)) || e.Source == "" || e.DetailType == "" {
			out.FailedEntryCount++
			out.Entries = append(out.Entries, entry{ErrorCode: "MalformedDetail", ErrorMessage: "Detail is malformed."})
			continue
		}
		out.Entries = append(out.Entries,
			entry{EventID: b.Put(r.Context(), e.Source, e.DetailType, json.RawMessage(e.Detail), e.Resources...)})
	}
	_ = json.NewEncoder(w).Encode(out) // the client is gone if this fails
}

// Put delivers an event, as AWS services do with theirs, and returns its id.
func (b *Bus) Put(ctx context.Context, source, detailType string, detail json.RawMessage, resources ...string) string {
	id := b.nextID()
	event, invalid := jsonx.MarshalVerbatim(map[string]any{
		"version": "0", "id": id, "detail-type": detailType, "source": source, "account": "000000000000",
		"region": "eu-central-1", "time": b.Clock.Now().Format(time.RFC3339), "resources": resources, "detail": detail,
	})
	for _, r := range b.Rules {
		fits, err := false, invalid
		if err == nil {
			fits, err = Matches(r.Pattern, event)
		}
		input := event
		if err == nil && fits && r.Input != nil {
			input, err = r.Input.Apply(event)
		}
		for range max(1, b.Deliveries) {
			if err != nil || !fits {
				break
			}
			err = r.Target(ctx, b.nextID(), input)
		}
		if err != nil {
			b.mu.Lock()
			b.refused = append(b.refused, fmt.Errorf("deliver event %v by rule %s: %w", id, r.Name, err))
			b.mu.Unlock()
		}
	}
	return id
}

// refuseRPC refuses a request of awsJson, whose Content-Type is set.
func refuseRPC(w http.ResponseWriter, name, text string) {
	w.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": name, "message": text})
}

// nextID is an id of an event, shaped as a UUID.
func (b *Bus) nextID() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", b.count.Add(1)) }

var placeholder = regexp.MustCompile(`<[A-Za-z0-9_.-]+>`)

// Apply makes the input. As in the service, what a path does not find leaves nothing in its place. A result that is not
// JSON is an error; in quotes, a text makes one here.
func (t *InputTransformer) Apply(event json.RawMessage) (json.RawMessage, error) {
	parsed, err := jsonx.DecodeNumbers(event)
	if err != nil {
		return nil, err
	}
	out := placeholder.ReplaceAllStringFunc(t.Template, func(name string) string {
		value, problem := t.value(strings.Trim(name, "<>"), parsed)
		if problem != nil || value == nil {
			err = errors.Join(err, problem)
			return ""
		}
		text, problem := jsonx.MarshalVerbatim(value)
		err = errors.Join(err, problem)
		return string(text)
	})
	if err == nil && !json.Valid([]byte(out)) {
		err = errors.New("the input transformer's output is not JSON")
	}
	return json.RawMessage(strings.TrimSpace(out)), err
}

func (t *InputTransformer) value(name string, event any) (any, error) {
	path, ok := t.Paths[name]
	if !ok {
		return nil, fmt.Errorf("input transformer: <%s> is not in the paths map", name)
	}
	steps, ok := strings.CutPrefix(path, "$.")
	if !ok || strings.ContainsAny(steps, "[]*?@") {
		return nil, fmt.Errorf("input transformer: path %q: want $.name.name", path)
	}
	for step := range strings.SplitSeq(steps, ".") {
		object, _ := event.(map[string]any)
		if event, ok = object[step]; !ok {
			return nil, nil
		}
	}
	return event, nil
}

// Matches reports whether an event fits an event pattern: every field of the pattern is in the event, with one of the
// values listed. Comparisons are exact values, prefix and exists, which looks at leaves alone; others are an error that
// names them.
func Matches(pattern, event json.RawMessage) (bool, error) {
	p, err := jsonx.DecodeNumbers(pattern)
	if err != nil {
		return false, fmt.Errorf("event pattern: %w", err)
	}
	e, err := jsonx.DecodeNumbers(event)
	if err != nil {
		return false, fmt.Errorf("event: %w", err)
	}
	wanted, ok := p.(map[string]any)
	if !ok {
		return false, errors.New("event pattern: want an object")
	}
	got, _ := e.(map[string]any)
	return jsonObject(wanted, got, "")
}

func jsonObject(pattern, event map[string]any, at string) (bool, error) {
	for name, want := range pattern {
		path := strings.TrimPrefix(at+"."+name, ".")
		got, there := event[name]
		var ok bool
		var err error
		switch want := want.(type) {
		case map[string]any:
			inner, _ := got.(map[string]any)
			ok, err = jsonObject(want, inner, path)
		case []any:
			ok, err = oneOf(want, got, there, path)
		default:
			err = fmt.Errorf("event pattern: %s: want an object or a list", path)
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func oneOf(wanted []any, got any, there bool, path string) (bool, error) {
	values, isList := got.([]any)
	if !isList {
		values = []any{got}
	}
	for _, want := range wanted {
		rule, isRule := want.(map[string]any)
		prefix, hasPrefix := rule["prefix"].(string)
		exists, hasExists := rule["exists"].(bool)
		switch {
		case isRule && len(rule) != 1:
			return false, fmt.Errorf("event pattern: %s: want one comparison", path)
		case isRule && !hasPrefix && !hasExists:
			return false, fmt.Errorf("event pattern: %s: comparison %v is not known here", path, rule)
		}
		for _, v := range values {
			text, isText := v.(string)
			_, isObject := v.(map[string]any)
			if hasPrefix && there && isText && strings.HasPrefix(text, prefix) ||
				hasExists && (there && !isObject) == exists || !isRule && there && reflect.DeepEqual(want, v) {
				return true, nil
			}
		}
	}
	return false, nil
}
