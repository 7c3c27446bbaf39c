package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/tool"
)

// On a laptop mails are files of the store directory, and Slack is on where its token is among the secrets.
func TestC1C2ChannelsOfALaptop(t *testing.T) {
	dir := t.TempDir()
	kept := tool.LocalSecrets{File: filepath.Join(dir, tool.SecretsFile)}
	names := func() (out []string) {
		all, err := local.Channels(t.Context(), dir, kept, clock.System())
		require.NoError(t, err)
		for _, c := range all {
			out = append(out, c.Name())
		}
		return out
	}
	require.Equal(t, []string{"email"}, names())
	signing, err := local.OptionalSecret(t.Context(), kept, local.SlackSecret)
	require.NoError(t, err)
	require.Empty(t, signing)

	all, err := local.Channels(t.Context(), dir, kept, clock.System())
	require.NoError(t, err)
	_, err = all[0].Send(t.Context(), people.Message{
		Occasion: people.Asked, To: people.Person{ID: "user:ana", Email: "ana@example.com"},
		Approval: approval.Approval{ID: "a1", Status: approval.Pending, ExpiresAt: time.Unix(2e9, 0)},
	})
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "outbox", "*.eml"))
	require.NoError(t, err)
	require.Len(t, files, 1)

	require.NoError(t, os.WriteFile(kept.File, []byte("SLACK_BOT_TOKEN: xoxb-1-x\nSLACK_SIGNING_SECRET: \"one, two\"\n"), 0o600))
	require.Equal(t, []string{"slack", "email"}, names())
	signing, err = local.OptionalSecret(t.Context(), kept, local.SlackSecret)
	require.NoError(t, err)
	require.Equal(t, "one, two", signing)

	for _, bad := range []string{"SLACK_BOT_TOKEN: xoxp-s3cret\n", "SLACK_BOT_TOKEN: [s3cret]\n"} {
		require.NoError(t, os.WriteFile(kept.File, []byte(bad), 0o600))
		_, err = local.Channels(t.Context(), dir, kept, clock.System())
		require.ErrorContains(t, err, "SLACK_BOT_TOKEN")
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.NoError(t, os.WriteFile(kept.File, []byte("KEY: one\nKEY: two\n"), 0o600))
	_, err = local.Channels(t.Context(), dir, kept, clock.System())
	require.EqualError(t, err, "secrets.yaml:2: KEY: got the name a second time, want it once", "it is about no secret")
}
