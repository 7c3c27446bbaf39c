package policy

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// TestEverySignalIsFound gives each phrase a text of its own: nothing else in it says anything.
func TestEverySignalIsFound(t *testing.T) {
	var a agent.Analysis
	around := func(phrase string) string { return "Well, " + strings.ToUpper(phrase) + " of it, so it is." }
	require.Empty(t, ClassifyText(a, around("this"), true))
	for _, s := range incompletePhrases {
		require.Equal(t, KindIncomplete, ClassifyText(a, around(s), false), s)
	}
	for _, s := range deflectionPhrases {
		require.Equal(t, KindDeflection, ClassifyText(a, around(s), true), s)
		require.Empty(t, ClassifyText(a, around(s), false), "%q where nobody suspects it", s)
	}
	for _, s := range completionPhrases {
		require.Empty(t, ClassifyText(a, "There are 2 remaining. Which one? "+around(s), true), s)
	}
	for _, s := range presentingPhrases {
		require.Empty(t, ClassifyText(a, "I notice a thing. "+around(s), true), s)
	}
}

func TestRead(t *testing.T) {
	long := strings.Repeat("So it goes. ", 25)
	tests := []struct {
		name, text string
		want       run.CorrectionKind
	}{
		{"the seed's fatigue", "I've renamed 3 files. There are 4 remaining...", KindIncomplete},
		{"the seed's end", "All screenshots have been renamed successfully...", ""},
		{"incomplete comes first", "4 remaining. Shall I go on?", KindIncomplete},
		{"completion vetoes the one", "Processed all; none of it remaining.", ""},
		{"things are counted", "All 7 photos have been renamed, 0 remaining.", ""},
		{"and named", "All of 1.png, 2.png and\nold (3).png HAVE BEEN renamed. Next file: none.", ""},
		{"all of them at once", "The 7 photos have all been renamed; no more files remaining.", ""},
		{"every one", "Every last photo has been renamed, 0 remaining.", ""},
		{"not all, with a count", "I have not renamed everything: not all 7 photos have been renamed, 3 remaining.", KindIncomplete},
		{"a condition", "I'll continue until all 7 photos have been renamed.", KindIncomplete},
		{"those that were", "All photos that have been renamed are in one folder, 3 are remaining.", KindIncomplete},
		{"have not been", "All 3 remaining photos have not been renamed.", KindIncomplete},
		{"another sentence", "I saw all of it. Three files have been renamed, 4 remaining.", KindIncomplete},
		{"a model that does not stop", strings.Repeat("not all done ", 20_000), KindIncomplete}, // was minutes
		{"too far apart", "All in all I am glad to say that by now quite a few of the photos have been renamed, 3 remaining.", KindIncomplete},
		{"299 bytes", strings.Repeat("x", 298) + "?", KindDeflection},
		{"300 bytes", strings.Repeat("x", 299) + "?", ""},
		{"a long question with a phrase", long + "Which one?", KindDeflection},
		{"results", "I notice this. Here are the results: 7.", ""},
		{"results and an offer", "Here are the results: 7. Feel free to ask.", KindDeflection},
		{"results and an unfinished rest", "Here are the results: 7. More files follow.", KindIncomplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, ClassifyText(agent.Analysis{}, tt.text, true)) })
	}
}

// TestOwnLists: each replaces its built-in one, and no other.
func TestOwnLists(t *testing.T) {
	own := agent.Analysis{Incomplete: []string{"Noch Offen"}, Completion: []string{"FERTIG"}, Deflection: []string{"und nun"}}
	require.Equal(t, KindIncomplete, ClassifyText(own, "all done, 2 noch offen", false))
	require.Equal(t, KindDeflection, ClassifyText(own, "Und nun", true))
	require.Empty(t, ClassifyText(own, "Let me know", true))
	require.Equal(t, KindDeflection, ClassifyText(own, "Ja?", true), "a short question is one by its length")
	stars := agent.Analysis{Completion: []string{"alle * sind umbenannt", "**Fertig**"}}
	require.Empty(t, ClassifyText(stars, "Alle 7 Fotos sind umbenannt, nothing remaining", false))
	require.Equal(t, KindIncomplete, ClassifyText(stars, "alle. Sie sind umbenannt, 3 remaining", false))
	require.Empty(t, ClassifyText(stars, "**fertig**, 0 remaining", false), "a star that is no word is itself")
	require.Equal(t, KindIncomplete, ClassifyText(stars, "fertig, 3 remaining", false))
}

// FuzzClassifyText: whatever a model says is taken for something, for the same every time, and for the same in any case of its
// letters.
func FuzzClassifyText(f *testing.F) {
	for _, list := range [][]string{incompletePhrases, completionPhrases, deflectionPhrases, presentingPhrases} {
		for _, s := range list {
			f.Add(s, true)
		}
	}
	for _, text := range []string{"", "?", "4 REMAİNİNG", "mo\u017fre file\u017f", "chec\u212ang", "I DON’T have access", "\xff\xfe?", strings.Repeat("é", 150) + "?", "İıſKΩΣς"} {
		f.Add(text, false)
	}
	own := agent.Analysis{Incomplete: []string{"Straße", "ΣΊΣΥΦΟΣ"}, Completion: []string{"K"}, Deflection: []string{"ſo", "’s"}}
	f.Fuzz(func(t *testing.T, text string, suspected bool) {
		for _, a := range []agent.Analysis{{}, own} {
			got := ClassifyText(a, text, suspected)
			require.Equal(t, got, ClassifyText(a, text, suspected))
			require.Contains(t, []run.CorrectionKind{"", KindIncomplete, KindDeflection}, got)
			if !suspected {
				require.NotEqual(t, KindDeflection, got)
			}
		}
		otherCase := strings.Map(unicode.SimpleFold, text)
		require.Equal(t, ClassifyText(agent.Analysis{}, text, false), ClassifyText(agent.Analysis{}, otherCase, false))
	})
}
