package agent

import (
	"cmp"
	"fmt"
	"unicode/utf8"
)

// MaxResult is how many bytes of a result's text are taken, whatever its tool says.
const MaxResult = 8 << 20

// CapResult is as much of a result's text as is taken of the tool t, in whole characters, as valid text; and, where that is not all of it,
// what the model is told. It comes before everything else that is done with a result: what is not taken is nowhere.
func CapResult(t ToolSpec, text string) (taken, notice string) {
	most := cmp.Or(t.MaxResult, MaxResult)
	total := int64(len(text))
	if total > 2*most+utf8.UTFMax { // what cannot be shown any more need not be looked at
		text = text[:2*most+utf8.UTFMax]
	}
	text = validText(text)
	if int64(len(text)) <= most && total <= most {
		return text, ""
	}
	cut := int(min(most, int64(len(text))))
	for cut > 0 && cut < len(text) && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut], fmt.Sprintf("[The first %d of %d bytes of this result were taken, and the rest is lost: %s gives at most %d.]", cut, total, t.Name, most)
}
