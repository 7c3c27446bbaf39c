package people_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
)

const staff = `{
  "tenants": {
    "acme": {
      "user:ana": {"groups": ["group:finance", "group:operators"], "name": "Ana", "email": "ana@example.com", "slack": "U0ANA", "notify": ["slack", "email"]},
      "user:ben": ["group:operators"],
      "user:carl": {"email": "carl@example.com", "notify": []},
      "user:dan": null
    },
    "other": {"user:ana": {"groups": ["group:finance"], "slack": "U0ANA"}}
  },
  "slack": {"T0ACME": "acme", "E0ACME": "acme", "T0OTHER": "other"}
}`

func book(t testing.TB, text string) *people.Book {
	t.Helper()
	b, err := people.Read([]byte(text))
	require.NoError(t, err)
	return b
}

func ids(list []people.Person) []string {
	out := []string{}
	for _, p := range list {
		out = append(out, p.ID)
	}
	return out
}

func TestDirectoryOfADocument(t *testing.T) {
	ctx := context.Background()
	b := book(t, staff)
	ana, found, err := b.Person(ctx, "acme", "user:ana")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, people.Person{
		ID: "user:ana", Groups: []string{"group:finance", "group:operators"}, Name: "Ana", Email: "ana@example.com", Slack: "U0ANA", Notify: []string{"slack", "email"},
	}, ana)
	require.Equal(t, policy.Principal{ID: "user:ana", Groups: []string{"group:finance", "group:operators"}}, ana.Principal())
	ana.Groups[0] = "group:changed"
	again, _, _ := b.Person(ctx, "acme", "user:ana")
	require.Equal(t, "group:finance", again.Groups[0], "what is given away is the caller's own")

	carl, _, _ := b.Person(ctx, "acme", "user:carl")
	require.NotNil(t, carl.Notify, "an empty list is none, not all")
	dan, found, _ := b.Person(ctx, "acme", "user:dan")
	require.True(t, found)
	require.Nil(t, dan.Notify)
	for _, who := range [][2]string{{"acme", "user:eve"}, {"other", "user:ben"}, {"nobody", "user:ana"}, {"", ""}} {
		_, found, err := b.Person(ctx, who[0], who[1])
		require.NoError(t, err)
		require.False(t, found, who)
	}
	for principals, want := range map[string][]string{
		"group:operators":                     {"user:ana", "user:ben"},
		"group:finance,user:ben,user:ana":     {"user:ana", "user:ben"},
		"user:carl":                           {"user:carl"},
		"user:eve,group:nobody,group:finance": {"user:ana"},
		"":                                    {},
	} {
		list, err := b.Members(ctx, "acme", strings.Split(principals, ","))
		require.NoError(t, err)
		require.Equal(t, want, ids(list), principals)
	}
	none, err := (&people.Book{}).Members(ctx, "acme", []string{"user:ana"})
	require.NoError(t, err)
	require.Empty(t, none, "the zero book knows nobody")
}

// A member of a workspace is a person of the tenant that the workspace is of, and of no other.
func TestC1SlackMembersArePeopleOfTheirTenant(t *testing.T) {
	b := book(t, staff)
	for _, c := range []struct {
		team, member, tenant, id string
	}{
		{"T0ACME", "U0ANA", "acme", "user:ana"},
		{"E0ACME", "U0ANA", "acme", "user:ana"},
		{"T0OTHER", "U0ANA", "other", "user:ana"},
		{"T0NONE", "U0ANA", "", ""},
		{"T0ACME", "U0EVE", "", ""},
		{"T0ACME", "", "", ""},
		{"", "", "", ""},
	} {
		tenant, p, found, err := b.Slack(context.Background(), c.team, c.member)
		require.NoError(t, err)
		require.Equal(t, c.id != "", found, c)
		require.Equal(t, c.tenant, tenant, c)
		require.Equal(t, c.id, p.ID, c)
	}
}

func TestReadSaysWhatIsWrongAndWhere(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no json":             {"{\n\"tenants\": {]}", "line 2: json at offset"},
		"a key twice":         {"{\"slack\": {},\n\"slack\": {}}", "line 2: json at offset"},
		"a list":              {`[]`, "line 1: want an object"},
		"unknown key":         {"{\n\"people\": {}}", "line 2: people: want a known key"},
		"tenant":              {"{\"tenants\": {\n\n\"ACME\": {}}}", "line 3: tenants.ACME: want a tenant's name"},
		"tenant is no object": {`{"tenants": {"acme": []}}`, "line 1: tenants.acme: want an object"},
		"no user":             {"{\"tenants\": {\"acme\": {\n\"ana\": {}}}}", "line 2: tenants.acme.ana: want user:NAME"},
		"a group is nobody":   {`{"tenants": {"acme": {"group:finance": {}}}}`, "tenants.acme.group:finance: want user:NAME"},
		"two in one":          {`{"tenants": {"acme": {"user:ana,group:finance": {}}}}`, "want user:NAME"},
		"unknown key of one":  {"{\"tenants\": {\"acme\": {\"user:ana\": {\n\"mail\": \"x\"}}}}", "line 2: tenants.acme.user:ana.mail: want a known key"},
		"a string":            {`{"tenants": {"acme": {"user:ana": "group:finance"}}}`, "tenants.acme.user:ana: want an object"},
		"group":               {`{"tenants": {"acme": {"user:ana": ["finance"]}}}`, `tenants.acme.user:ana: got "finance", want a list of group:NAME`},
		"a user as group":     {`{"tenants": {"acme": {"user:ana": {"groups": ["user:ben"]}}}}`, `tenants.acme.user:ana.groups: got "user:ben", want a list of group:NAME`},
		"a null among groups": {`{"tenants": {"acme": {"user:ana": {"groups": [null]}}}}`, `groups: got "", want a list of group:NAME`},
		"a number as group":   {`{"tenants": {"acme": {"user:ana": {"groups": [1]}}}}`, "groups.0: want a string"},
		"name":                {`{"tenants": {"acme": {"user:ana": {"name": "A\u202Ena"}}}}`, "tenants.acme.user:ana.name: want 1 to 200 characters"},
		"name of two lines":   {`{"tenants": {"acme": {"user:ana": {"name": "A\nB"}}}}`, "tenants.acme.user:ana.name: want"},
		"email":               {`{"tenants": {"acme": {"user:ana": {"email": "ana"}}}}`, "tenants.acme.user:ana.email: want one address"},
		"two emails":          {`{"tenants": {"acme": {"user:ana": {"email": "a@b.c,d@e.f"}}}}`, "tenants.acme.user:ana.email: want one address"},
		"email with a header": {`{"tenants": {"acme": {"user:ana": {"email": "a@b.c\r\nBcc: x@y.z"}}}}`, "tenants.acme.user:ana.email: want one address"},
		"email is a number":   {`{"tenants": {"acme": {"user:ana": {"email": 1}}}}`, "tenants.acme.user:ana.email: want a string"},
		"slack":               {`{"tenants": {"acme": {"user:ana": {"slack": "@ana"}}}}`, "tenants.acme.user:ana.slack: want a member's id"},
		"slack in small":      {`{"tenants": {"acme": {"user:ana": {"slack": "u0ana"}}}}`, "tenants.acme.user:ana.slack: want a member's id"},
		"slack as a path":     {`{"tenants": {"acme": {"user:ana": {"slack": "U/.."}}}}`, "tenants.acme.user:ana.slack: want a member's id"},
		"slack's letter":      {`{"tenants": {"acme": {"user:ana": {"slack": "U"}}}}`, "tenants.acme.user:ana.slack: want a member's id"},
		"a team as member":    {`{"tenants": {"acme": {"user:ana": {"slack": "T012"}}}}`, "tenants.acme.user:ana.slack: want a member's id"},
		"slack twice":         {"{\"tenants\": {\"acme\": {\"user:ana\": {\"slack\": \"U012\"},\n\"user:ben\": {\"groups\": [],\n\"slack\": \"U012\"}}}}", "line 3: tenants.acme.user:ben.slack: it is that of user:ana as well"},
		"channel":             {`{"tenants": {"acme": {"user:ana": {"notify": ["sms"]}}}}`, `tenants.acme.user:ana.notify: got "sms", want email or slack`},
		"channel twice":       {`{"tenants": {"acme": {"user:ana": {"email": "a@b.c", "notify": ["email", "email"]}}}}`, "tenants.acme.user:ana.notify: email is named twice"},
		"channel to nowhere":  {`{"tenants": {"acme": {"user:ana": {"notify": ["slack"]}}}}`, "tenants.acme.user:ana.notify: got slack, and the person has no slack here"},
		"workspace":           {`{"tenants": {"acme": {}}, "slack": {"acme": "acme"}}`, "slack.acme: want a workspace's id"},
		"workspace's tenant":  {"{\"tenants\": {\"acme\": {}}, \"slack\": {\n\"T012\": \"other\"}}", `line 2: slack.T012: got "other", want a tenant that has people here`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := people.Read([]byte(c.text))
			var bad *people.ReadError
			require.ErrorAs(t, err, &bad)
			require.Contains(t, err.Error(), c.want)
			for _, secret := range []string{"a@b.c", "x@y.z"} {
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
	for _, text := range []string{`{}`, `null`, `{"tenants": null, "slack": {}}`} {
		book(t, text)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(staff)
	f.Add(`{"tenants": {"acme": {"user:ana": {"groups": [`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := people.Read([]byte(text))
		if err != nil {
			var bad *people.ReadError
			require.ErrorAs(t, err, &bad)
			require.LessOrEqual(t, bad.Line, 1+strings.Count(text, "\n"))
			require.Positive(t, bad.Line)
			return
		}
		_, _, _, err = b.Slack(context.Background(), "T0ACME", "U0ANA")
		require.NoError(t, err)
	})
}

func TestValidEmail(t *testing.T) {
	for a, want := range map[string]bool{
		"ana@example.com": true, "a.b+c@mail.example.co.uk": true, "": false, "ana": false, "@example.com": false, "ana@": false, "ana@localhost": false,
		"a@b@example.com": false, "ana@example.com, eve@example.com": false, "Ana <ana@example.com>": false, "ana@example.com\r\nBcc: eve@example.com": false,
		"ana@exämple.com": false, "ana.@example.com": false, "a..b@example.com": false, "ana@.example.com": false, "ana@example.com.": false, "\"a b\"@example.com": false,
		strings.Repeat("x", 65) + "@example.com": false, "ana@" + strings.Repeat("x.", 130) + "com": false,
	} {
		require.Equal(t, want, people.ValidEmail(a), a)
	}
}
