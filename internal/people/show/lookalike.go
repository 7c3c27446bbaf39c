package show

import (
	"strings"
	"unicode"
)

// The warnings after words.
const (
	mixedScripts   = `\{mixed scripts}`
	looksLikeLatin = `\{looks like Latin}`
	imitatesLatin  = `\{odd letters}`
	otherDigits    = `\{digits of another script}`
)

// mixableScripts are the scripts whose letters occur together with Latin ones in genuine words. Letters of no script
// are not among them; they are checked as odd letters.
var mixableScripts = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul,
	unicode.Bopomofo, unicode.Common, unicode.Inherited}

// lookalikes are letters of other scripts that look like Latin ones, by script.
var lookalikes = []struct {
	script  *unicode.RangeTable
	letters string
}{
	{unicode.Cyrillic, "асеорхуѕіјһԁԛԝѵӏьгпкмтвнАВЕКМНОРСТУХЅІЈҮԌԚԜЬЗЭбɡ"},
	{unicode.Greek, "οναρυικωηγτχεϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϜ"},
	{unicode.Armenian, "օոսցհքզղյգՕՏՍՈԼՁ"},
	{unicode.Cherokee, "ᎠᎡᎢᎥᎩᎪᎫᎬᎳᎶᎷᎻᎽᏀᏃᏂᏎᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏭᏴᏳ" +
		"ꭰꭱꭲꮁꮃꮇꮋꮐꮓꮜꮩꮪꮯꮲ"},
	{unicode.Coptic, "ⲟⲣⲥⲭⲓⲕⲙⲛⲧⲩⲁⲂⲈⲎⲒⲔⲘⲚⲞⲢⲤⲦⲨⲬⲌ"},
	{unicode.Lisu, "ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓛꓜꓝꓞꓟꓠꓡꓢꓣꓤꓥꓦꓧꓨꓩꓪꓫꓬꓭꓮꓯꓰꓱꓲꓳꓴꓵꓶꓷ"},
	{unicode.Hebrew, "וסןט"},
	{unicode.Arabic, "اهةوﻩﻫ"},
	{unicode.Deseret, "𐐄𐐕𐐛𐐠𐐬𐐽𐑈"},
	{unicode.Old_Italic, "𐌀𐌁𐌂𐌄𐌉𐌊𐌌𐌍𐌏𐌓𐌕𐌖𐌗"},
}

// oddLetters are letters that imitate Latin ones: full-width, mathematical, phonetic and the like.
var oddLetters = ranges(
	"0132-0133 0184-0185 01BF 01C4-01CC 01F1-01F3",
	"0251 0261-0262 0269-026A 0274 0280 028F 0299 029C 029F 02B0-02B8 02E0-02E4",
	"1D00-1DBF 2071 207F 2090-209C 2102-2139 213C-2149 2160-2188",
	"A730-A731 A7AA-A7AE AB30-AB6F FB00-FB06 FF10-FF19 FF21-FF3A FF41-FF5A",
	"1D400-1D7FF 1F130-1F189 1FBF0-1FBF9",
)

// inWord reports whether a character belongs to a word: letters, their marks, digits, and enclosed letters.
func inWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N) || unicode.Is(oddLetters, r)
}

// markOf is the mark that a word needs, "" for none. In are the scripts of the text it stands in.
//
//	odd letters        one of them is made for mathematics, phonetics or another width
//	mixed scripts      they are of several scripts, be it not ones that are written together (kanji and Latin letters)
//	looks like Latin   all of them are of another script and look Latin; but a word of one or two letters in a text of
//	                   that script is one like any other
//	digits of another  it has decimal digits that are not 0 to 9, or beside such ones another sign for a number: many
//	script             look like other digits
func markOf(word string, in func() map[*unicode.RangeTable]bool) string {
	if !strings.ContainsFunc(word, func(r rune) bool { return r > unicode.MaxASCII }) {
		return ""
	}
	letters, twin, mark := 0, 0, ""
	var script *unicode.RangeTable // of the last letter
	mixed := false
	for _, r := range word {
		if unicode.Is(oddLetters, r) {
			return imitatesLatin
		}
		if r > unicode.MaxASCII &&
			(unicode.IsDigit(r) || unicode.IsNumber(r) && strings.ContainsFunc(word, unicode.IsDigit)) {
			mark = otherDigits
		}
		if !unicode.IsLetter(r) || unicode.In(r, mixableScripts...) {
			continue
		}
		letters++
		of := scriptOf(r)
		mixed = mixed || letters > 1 && of != script
		if script = of; of != unicode.Latin && isLookalike(r) {
			twin++
		}
	}
	switch {
	case mixed:
		return mixedScripts
	case letters > 0 && twin == letters && (letters > 2 || !in()[script]):
		return looksLikeLatin
	}
	return mark
}

// otherScript stands for every script that lookalikes does not list.
var otherScript = &unicode.RangeTable{}

func scriptOf(r rune) *unicode.RangeTable {
	if unicode.Is(unicode.Latin, r) {
		return unicode.Latin
	}
	for _, t := range lookalikes {
		if unicode.Is(t.script, r) {
			return t.script
		}
	}
	return otherScript
}

func isLookalike(r rune) bool {
	for _, t := range lookalikes {
		if strings.ContainsRune(t.letters, r) {
			return true
		}
	}
	return false
}

// scriptsOf returns the scripts a text is written in: those of its letters that do not look Latin.
func scriptsOf(text string) map[*unicode.RangeTable]bool {
	of := map[*unicode.RangeTable]bool{}
	for _, r := range text {
		if unicode.IsLetter(r) && !isLookalike(r) {
			of[scriptOf(r)] = true
		}
	}
	return of
}
