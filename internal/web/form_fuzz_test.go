package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A form is refused, or has the page's own fields and each once: written again it is the same.
func FuzzReadForm(f *testing.F) {
	for _, seed := range []string{"form=x&action=approve&note=n", "action=approve&action=deny", "zzz=1", "note=%zz", "note=a;b", "note=%00%ff", "args=%7B%7D&action=edit", "text=" + strings.Repeat("x", 1001), "key=k"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, body string, proof bool) {
		read := func(body string) (map[string]string, error) {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return readForm(r, proof)
		}
		got, err := read(body)
		if err != nil {
			return
		}
		v := url.Values{}
		for name, value := range got {
			require.True(t, slices.Contains([]string{"form", "action", "note", "args", "result", "tool", "text"}, name) || proof && name == "key", name)
			v.Set(name, value)
		}
		again, err := read(v.Encode())
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}
