package lambdafn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/runtime"
)

// C3: where there is no channel, parking a run and deciding a request cost what they did: nobody is asked to tell anybody.
func TestC3NoChannelIsNoPort(t *testing.T) {
	p := runtime.Ports{}
	telling(testAWS, func(string) string { return "" }, &Observer{Log: func(string) {}}, &p)
	require.Nil(t, p.Notify)
}

// What goes wrong is logged without what it says (R17).
func TestNotifierLogsNoContent(t *testing.T) {
	var log []string
	n := notifier(runtime.Ports{Clock: clock.System()}, testAWS, func(string) string { return "" }, &Observer{Log: func(text string) { log = append(log, text) }})
	n.Warn("tell somebody of approval a1 by email", context.DeadlineExceeded)
	require.Equal(t, []string{"could not tell somebody of approval a1 by email"}, log)
}
