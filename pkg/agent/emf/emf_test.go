package emf_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/emf"
)

// The lines have the form of the specification: a metric under each set of dimensions, the empty one among them, one line each.
func TestLines(t *testing.T) {
	c := clock.NewVirtual(time.UnixMilli(1574109732004))
	var out bytes.Buffer
	m := emf.New(&out, c)
	for _, w := range []struct {
		name string
		n    int64
		dims []string
		want string
	}{
		{"SweepFailures", 0, nil, `{"SweepFailures":0,"_aws":{"Timestamp":1574109732004,"CloudWatchMetrics":[
			{"Namespace":"Countersign","Dimensions":[[]],"Metrics":[{"Name":"SweepFailures","Unit":"Count"}]}]}}`},
		{"RunsRepaired", 2, []string{"Repair", "took_over"}, `{"RunsRepaired":2,"Repair":"took_over","_aws":{"Timestamp":1574109732004,
			"CloudWatchMetrics":[{"Namespace":"Countersign","Dimensions":[[],["Repair"]],"Metrics":[{"Name":"RunsRepaired","Unit":"Count"}]}]}}`},
		{"OldestWaitSeconds", 90, nil, `{"OldestWaitSeconds":90,"_aws":{"Timestamp":1574109732004,"CloudWatchMetrics":[
			{"Namespace":"Countersign","Dimensions":[[]],"Metrics":[{"Name":"OldestWaitSeconds","Unit":"Seconds"}]}]}}`},
	} {
		out.Reset()
		m.Count(w.name, w.n, w.dims...)
		require.JSONEq(t, w.want, out.String())
		require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")), "one line")
	}
}
