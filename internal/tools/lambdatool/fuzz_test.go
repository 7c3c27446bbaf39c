package lambdatool

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a function gives is a result: text that can be stored, or the function's error.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`null`, `"x"`, `{}`, `{"text":"x"}`, `{"json":{"n":1e400}}`, `{"error":"no"}`, `{"media":{"mediaType":"image/png","data":"aGk="}}`, `{"suspend":{"message":"m"}}`,
		`{"patch":[{"path":"/a","value":1}]}`, `{"text":"x","text":"y"}`, `{"text":"x","json":1}`, `{`, ``, "\xff", `{"text":"\ud800"}`, `{"media":[null]}`, `{"suspend":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := readResult(payload)
		_, err := json.Marshal(d)
		require.NoError(t, err)
		for _, m := range d.Media {
			require.True(t, d.IsError || m.MediaType != "" && m.Data != "")
		}
		said, err := functionError(payload)
		require.True(t, err != nil || said.IsError)
	})
}
