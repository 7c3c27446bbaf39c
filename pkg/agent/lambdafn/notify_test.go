package lambdafn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/runtime"
)

// C3: where there is no channel, parking a run and deciding a request cost what they did: nobody is asked to tell anybody.
func TestC3NoChannelIsNoPort(t *testing.T) {
	p := runtime.Ports{}
	require.NoError(t, telling(func(string) string { return "" }, &Observer{Log: func(string) {}}, &p))
	require.Nil(t, p.Notify)
	require.Nil(t, decided(nil, p.Notify))
}

// hears is told of what a desk decides.
type hears struct{ runtime.Notify }

func (hears) Decided(ctx context.Context, a approval.Approval) {
	ctx.Value(key{}).(func(string))("second " + a.ID)
}

type key struct{}

// A decision is told to what traces it, and then to what tells people.
func TestDecisionsAreToldInOrder(t *testing.T) {
	var got []string
	ctx := context.WithValue(t.Context(), key{}, func(s string) { got = append(got, s) })
	first := func(_ context.Context, a approval.Approval) { got = append(got, "first "+a.ID) }
	decided(first, hears{})(ctx, approval.Approval{ID: "a1"})
	decided(nil, hears{})(ctx, approval.Approval{ID: "a2"})
	decided(first, nil)(ctx, approval.Approval{ID: "a3"})
	require.Equal(t, []string{"first a1", "second a1", "second a2", "first a3"}, got)
}

// What goes wrong is logged without what it says (R17).
func TestNotifierLogsNoContent(t *testing.T) {
	var log []string
	n, err := notifier(runtime.Ports{}, nil, func(text string) { log = append(log, text) })
	require.NoError(t, err)
	n.Warn("tell somebody of approval a1 by email", context.DeadlineExceeded)
	require.Equal(t, []string{"could not tell somebody of approval a1 by email"}, log)
}
