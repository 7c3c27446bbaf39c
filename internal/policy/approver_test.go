package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/policy"
)

func TestMayDecide(t *testing.T) {
	ana := policy.Principal{ID: "user:ana", Groups: []string{"group:finance"}}
	for _, tt := range []struct {
		name      string
		approvers []string
		who       policy.Principal
		want      bool
	}{
		{"by id", []string{"user:bo", "user:ana"}, ana, true},
		{"by group", []string{"group:finance"}, ana, true},
		{"neither", []string{"user:bo", "group:hr"}, ana, false},
		{"no approvers", nil, ana, false},
		{"nobody", []string{"", "user:ana"}, policy.Principal{}, false},
		{"an empty approver is nobody", []string{""}, policy.Principal{Groups: []string{""}}, false},
		{"a group is no user", []string{"group:finance"}, policy.Principal{ID: "group:finance"}, false},
		{"a group without a user", []string{"group:finance"}, policy.Principal{Groups: []string{"group:finance"}}, false},
		{"a user id among the groups", []string{"user:bo"}, policy.Principal{ID: "user:ana", Groups: []string{"user:bo"}}, false},
		{"spelling counts", []string{"user:Ana"}, ana, false},
	} {
		require.Equal(t, tt.want, policy.MayDecide(tt.approvers, tt.who), tt.name)
	}
}

func TestParsePrincipal(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want policy.Principal
	}{
		{"user:ana", policy.Principal{ID: "user:ana"}},
		{"user:ana@example.com,group:finance,group:eu-1", policy.Principal{ID: "user:ana@example.com", Groups: []string{"group:finance", "group:eu-1"}}},
		{"group:a,user:b", policy.Principal{ID: "user:b", Groups: []string{"group:a"}}},
	} {
		got, err := policy.ParsePrincipal(tt.in)
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
		again, err := policy.ParsePrincipal(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, bad := range []string{"", "ana", "user:", "group:a", "user:a,user:b", "user:a,", "user:a, group:b", "role:x", "user:a b", "user:" + strings.Repeat("a", 129)} {
		_, err := policy.ParsePrincipal(bad)
		require.ErrorContains(t, err, "parse principal", bad)
	}
}
