package person_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/store/memory"
)

// What a person says of how they are told goes before what the directory has, wherever they are found, and for them alone.
func TestPreferencesGoBeforeTheDirectory(t *testing.T) {
	table := memory.New()
	dir := person.WithPreferences(book(t, people), table)
	notify := func(t *testing.T) []string {
		p, _, err := dir.Person(ctx, "acme", "user:ana")
		require.NoError(t, err)
		list, err := dir.Members(ctx, "acme", []string{"group:finance"})
		require.NoError(t, err)
		require.Equal(t, p, list[0])
		_, slack, _, err := dir.Slack(ctx, "T0ACME", "U0ANA")
		require.NoError(t, err)
		require.Equal(t, p, slack)
		return p.Notify
	}
	require.Equal(t, []string{"slack", "email"}, notify(t))
	for _, want := range [][]string{{"email"}, {}, {"email", "slack"}} {
		require.NoError(t, person.WritePreferences(ctx, table, "acme", ana, person.Preferences{Notify: want}))
		require.Equal(t, want, notify(t))
		got, err := person.ReadPreferences(ctx, table, "acme", ana.ID)
		require.NoError(t, err)
		require.Equal(t, want, got.Notify)
	}
	other, _, err := dir.Person(ctx, "other", "user:ana")
	require.NoError(t, err)
	require.Nil(t, other.Notify, "a tenant's person is not another's")
	_, found, err := dir.Person(ctx, "acme", "user:eve")
	require.NoError(t, err)
	require.False(t, found)
	require.NoError(t, person.WritePreferences(ctx, table, "acme", ana, person.Preferences{}))
	require.Equal(t, []string{"slack", "email"}, notify(t), "and are taken back")
}

func TestPreferencesAreChecked(t *testing.T) {
	table := memory.New()
	for _, c := range []struct {
		by     agent.Principal
		notify []string
		want   string
	}{
		{ana, []string{"sms"}, `notify: got "sms", want email or slack`},
		{ana, []string{"email", "slack", "email"}, "notify: email is named twice"},
		{agent.Principal{}, nil, `"" is no person`},
		{agent.Principal{ID: "group:finance"}, nil, "is no person"},
	} {
		var refused *person.RefusedError
		err := person.WritePreferences(ctx, table, "acme", c.by, person.Preferences{Notify: c.notify})
		require.ErrorAs(t, err, &refused)
		require.Contains(t, err.Error(), c.want)
	}
	got, err := person.ReadPreferences(ctx, table, "acme", ana.ID)
	require.NoError(t, err)
	require.Equal(t, person.Preferences{}, got, "nobody has said anything")
}
