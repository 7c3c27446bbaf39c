package observe_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/observe"
)

const logCanary = "sk-canary-7331"

var errKnown = errors.New("table throttled")

// throttled is an error as the SDK has them.
type throttled struct{ code string }

func (e *throttled) Error() string     { return "service said " + logCanary }
func (e *throttled) ErrorCode() string { return e.code }

func line(t *testing.T, log func(l *slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	log(observe.NewLogger(&out, errKnown))
	require.NotContains(t, out.String(), logCanary)
	var m map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &m))
	delete(m, "time")
	return m
}

func TestOnlyWhatIsAllowedIsWritten(t *testing.T) {
	require.Equal(t, map[string]any{"level": "INFO", "msg": "m", "run": "r1", "count": 3.0}, line(t, func(l *slog.Logger) {
		l.Info("m", "run", "r1", "count", 3, "arguments", logCanary, "header", headerValue(logCanary), "tenant", []string{logCanary})
	}))
	require.Equal(t, map[string]any{"level": "WARN", "msg": "m", "tenant": "acme", "run": "r1"}, line(t, func(l *slog.Logger) {
		l.With("tenant", "acme", "token", logCanary).Warn("m", "run", "r1", slog.Group("run", "x", logCanary))
	}))
	require.Equal(t, map[string]any{"level": "INFO", "msg": "m", "g": map[string]any{"run": "r1"}}, line(t, func(l *slog.Logger) {
		l.WithGroup("g").Info("m", "run", "r1", "body", logCanary)
	}))
	require.Equal(t, map[string]any{"level": "INFO", "msg": "m"}, line(t, func(l *slog.Logger) { l.Info("m", "run", late{}) }))
}

// headerValue is a value that only says what it holds when it is printed.
type headerValue string

// late resolves to what is not allowed.
type late struct{}

func (late) LogValue() slog.Value { return slog.AnyValue([]string{logCanary}) }

// kinded is an error with a name for the state machine, as those of functions.
type kinded struct{ error }

func (kinded) ErrorType() string { return "Countersign.Invalid" }

// An error says what it is by its types, by codes, and by errors that are constants.
func TestErrorsSayTheirKinds(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []any
	}{
		"text":         {errors.New(logCanary), []any{"*errors.errorString"}},
		"a known one":  {fmt.Errorf("read %s: %w", logCanary, errKnown), []any{"table throttled"}},
		"a code":       {fmt.Errorf("x: %w", &throttled{"ThrottlingException"}), []any{"*observe_test.throttled", "ThrottlingException"}},
		"no code":      {&throttled{logCanary}, []any{"*observe_test.throttled"}},
		"a kind":       {kinded{errors.New(logCanary)}, []any{"observe_test.kinded", "Countersign.Invalid"}},
		"several":      {fmt.Errorf("%w and %w", errKnown, &throttled{"A"}), []any{"table throttled", "*observe_test.throttled", "A"}},
		"of a library": {&net.OpError{Op: logCanary, Err: errors.New(logCanary)}, []any{"*net.OpError"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := line(t, func(l *slog.Logger) { l.Error("failed", "error", c.err) })
			require.Equal(t, c.want, got["error"])
		})
	}
}

// What a service says is a code only where it has a code's form.
func TestCodes(t *testing.T) {
	for code, is := range map[string]bool{
		"ThrottlingException": true, "Countersign.Throttled": true, "a": true, strings.Repeat("a", 64): true,
		"": false, ".a": false, strings.Repeat("a", 65): false, "a b": false, "a1": false, "ä": false, "sk-canary": false, "a\n": false,
	} {
		require.Equal(t, is, slices.Contains(observe.ErrorKinds(&throttled{code}), code), "%q", code)
	}
}
