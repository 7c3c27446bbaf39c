package secrets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/secrets"
)

// FuzzParse: a ring signs with the key that it names, or the text is none; no error says anything of it.
func FuzzParse(f *testing.F) {
	f.Add(`{"id":"1","key":"` + first + `"}`)
	f.Add(`[{"id":"2","key":"` + second + `"}, {"id":"1","key":"` + first + `"}]`)
	f.Add("[]")
	f.Add(`{"id":"1","key":"` + first + `","key":"` + second + `"}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := secrets.Parse(text)
		if err != nil {
			require.NotContains(t, err.Error(), first)
			return
		}
		s, ok := r.Sign(r.Newest(), "links", "a")
		require.True(t, ok)
		require.True(t, r.Verify(s, r.Newest(), "links", "a"))
		require.False(t, r.Verify(s, r.Newest(), "links", "b"))
	})
}
