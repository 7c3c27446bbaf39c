package approval_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
)

var testLink = approval.Link{Tenant: "acme", Approval: "ap1", To: "user:ana", Channel: "email", Expires: noon.Add(time.Hour)}

func refusedCode(t *testing.T, err error) {
	t.Helper()
	var refused *approval.CodeError
	require.ErrorAs(t, err, &refused)
}

// A26: a code is of one person, channel, request and action.
func TestA26WhatACodeIsOf(t *testing.T) {
	for name, change := range map[string]func(l *approval.Link, digest *string){
		"person":  func(l *approval.Link, _ *string) { l.To = "user:bob" },
		"channel": func(l *approval.Link, _ *string) { l.Channel = "slack" },
		"request": func(l *approval.Link, _ *string) { l.Approval = "ap2" },
		"tenant":  func(l *approval.Link, _ *string) { l.Tenant = "other" },
		"action":  func(_ *approval.Link, digest *string) { *digest = "d2" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newLinkFixture(t, newKey)
			code, err := w.links.NewCode(t.Context(), testLink, "d1")
			require.NoError(t, err)
			of, digest := testLink, "d1"
			change(&of, &digest)
			if digest == "d1" { // also if the other one was sent a code
				require.NoError(t, errOf(w.links.NewCode(t.Context(), of, digest)))
			}
			refusedCode(t, w.links.UseCode(t.Context(), of, digest, code))
			require.NoError(t, w.links.UseCode(t.Context(), testLink, "d1", code))
			refusedCode(t, w.links.UseCode(t.Context(), testLink, "d1", code))
		})
	}
}

// A26: a code is used once and every try counts, also if others write at the same moment.
func TestA26CodesAtTheSameTime(t *testing.T) {
	w := newLinkFixture(t, newKey)
	table := fault.NewTable(w.table)
	overtake := func(f func()) { table.Once(fault.IsWrite, fault.Before(func() error { f(); return nil })) }
	w.links.Table = table
	code, err := w.links.NewCode(t.Context(), testLink, "d")
	require.NoError(t, err)
	for range 2 { // four tries in pairs
		overtake(func() { refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", "1")) })
		refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", "2"))
	}
	overtake(func() { require.NoError(t, w.links.UseCode(t.Context(), testLink, "d", code)) })
	refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", code))

	w.now = w.now.Add(time.Minute)
	overtake(func() {
		code, err = w.links.NewCode(t.Context(), testLink, "d")
		require.NoError(t, err)
	})
	_, late := w.links.NewCode(t.Context(), testLink, "d")
	refusedCode(t, late)
	require.NoError(t, w.links.UseCode(t.Context(), testLink, "d", code), "one of two requests for a code counts")
}

// A26: at most ten codes are sent.
func TestA26TenCodes(t *testing.T) {
	w := newLinkFixture(t, newKey)
	for range 10 {
		require.NoError(t, errOf(w.links.NewCode(t.Context(), testLink, "d")))
		w.now = w.now.Add(time.Minute)
	}
	require.ErrorContains(t, errOf(w.links.NewCode(t.Context(), testLink, "d")), "no more are")
}
