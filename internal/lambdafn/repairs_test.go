package lambdafn

import (
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/runtime"
)

// meter counts by name and dimensions.
type meter map[string]int64

func (m meter) Count(name string, n int64, dims ...string) {
	m[strings.Join(append([]string{name}, dims...), " ")] += n
}

func (m meter) Seconds(string, time.Duration, ...string) {}

// Every kind of repair is counted under its own name, in the log, in the sum that an alarm watches, and is one that the API documents; and
// nothing else is.
func TestEveryRepairIsCountedAndAlarmed(t *testing.T) {
	m, found := meter{}, map[runtime.Repair]int64{}
	want := meter{observe.RunsRepaired: 0}
	for i, kind := range runtime.Repairs() {
		found[kind] = int64(i + 1)
		want[observe.RunsRepaired+" Repair "+string(kind)] = int64(i + 1)
		want[observe.RunsRepaired] += int64(i + 1)
	}
	(&sweeping{metrics: m, log: slog.New(slog.NewTextHandler(io.Discard, nil))}).countRepaired(found)
	require.Equal(t, want, m)

	template, err := os.ReadFile("../../template.yaml")
	require.NoError(t, err)
	for _, name := range observe.AlarmMetrics() {
		require.Contains(t, string(template), "MetricName: "+name+"\n")
	}
	require.Contains(t, observe.AlarmMetrics(), observe.RunsRepaired)

	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []runtime.Repair }
			}
		}
	}
	text, err := os.ReadFile("../../docs/openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &doc))
	require.ElementsMatch(t, slices.Collect(maps.Keys(found)), doc.Components.Schemas["Repaired"].Properties["kind"].Enum)
}
