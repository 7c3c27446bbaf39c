package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// A tool that says nothing has run all the same, and the model is told so; one that gives media or an edit is told by those.
func TestAToolThatSaysNothing(t *testing.T) {
	c := run.Call{Name: "files_touch"}
	require.Equal(t, "files_touch ran and gave no response.", resultText(c, "", storedMedia{}))
	require.Equal(t, " ", resultText(c, " ", storedMedia{}))
	pictures := storedMedia{media: []run.Media{{Name: "a.png", MediaType: "image/png"}}}
	require.Equal(t, agent.TextMedia(pictures.media), resultText(c, "", pictures))
	left := storedMedia{notices: []string{"[left out]"}}
	require.Equal(t, "files_touch ran and gave no response.\n[left out]", resultText(c, "", left))
}
