package show

import (
	"strings"
	"unicode"
)

// The warnings after words.
const (
	mixedScripts   = `\{mixed scripts}`
	looksLikeLatin = `\{looks like Latin}`
	oddLetters     = `\{odd letters}`
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

// oddLetterRanges are letters that imitate Latin ones: full-width, mathematical, phonetic and the like.
var oddLetterRanges = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0251, Hi: 0x0251, Stride: 1}, {Lo: 0x0261, Hi: 0x0262, Stride: 1}, {Lo: 0x0269, Hi: 0x026A, Stride: 1},
		{Lo: 0x0274, Hi: 0x0274, Stride: 1},
		{Lo: 0x0280, Hi: 0x0280, Stride: 1}, {Lo: 0x028F, Hi: 0x028F, Stride: 1}, {Lo: 0x0299, Hi: 0x0299, Stride: 1},
		{Lo: 0x029C, Hi: 0x029C, Stride: 1}, {Lo: 0x029F, Hi: 0x029F, Stride: 1},
		{Lo: 0x0184, Hi: 0x0185, Stride: 1}, {Lo: 0x01BF, Hi: 0x01BF, Stride: 1}, {Lo: 0x01C4, Hi: 0x01CC, Stride: 1},
		{Lo: 0x01F1, Hi: 0x01F3, Stride: 1},
		{Lo: 0x0132, Hi: 0x0133, Stride: 1}, {Lo: 0x02B0, Hi: 0x02B8, Stride: 1}, {Lo: 0x02E0, Hi: 0x02E4, Stride: 1},
		{Lo: 0x1D00, Hi: 0x1DBF, Stride: 1}, {Lo: 0x2071, Hi: 0x2071, Stride: 1}, {Lo: 0x207F, Hi: 0x207F, Stride: 1},
		{Lo: 0x2090, Hi: 0x209C, Stride: 1},
		{Lo: 0x2102, Hi: 0x2138, Stride: 1}, {Lo: 0x2139, Hi: 0x2139, Stride: 1}, {Lo: 0x213C, Hi: 0x2149, Stride: 1},
		{Lo: 0x2160, Hi: 0x2188, Stride: 1},
		{Lo: 0xA730, Hi: 0xA731, Stride: 1}, {Lo: 0xA7AA, Hi: 0xA7AE, Stride: 1}, {Lo: 0xAB30, Hi: 0xAB6F, Stride: 1},
		{Lo: 0xFB00, Hi: 0xFB06, Stride: 1}, {Lo: 0xFF10, Hi: 0xFF19, Stride: 1}, {Lo: 0xFF21, Hi: 0xFF3A, Stride: 1},
		{Lo: 0xFF41, Hi: 0xFF5A, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1D400, Hi: 0x1D7FF, Stride: 1}, {Lo: 0x1F130, Hi: 0x1F189, Stride: 1},
		{Lo: 0x1FBF0, Hi: 0x1FBF9, Stride: 1}},
}

// inWord reports whether a character belongs to a word: letters, their marks, digits, and enclosed letters.
func inWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N) || unicode.Is(oddLetterRanges, r)
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
	scripts := map[*unicode.RangeTable]bool{}
	if !strings.ContainsFunc(word, func(r rune) bool { return r > unicode.MaxASCII }) {
		return ""
	}
	letters, twin, mark := 0, 0, ""
	for _, r := range word {
		if unicode.Is(oddLetterRanges, r) {
			return oddLetters
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
		scripts[of] = true
		if of != unicode.Latin && isLookalike(r) {
			twin++
		}
	}
	switch {
	case len(scripts) > 1:
		return mixedScripts
	case letters > 0 && twin == letters && (letters > 2 || !in()[onlyScript(scripts)]):
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

func onlyScript(scripts map[*unicode.RangeTable]bool) *unicode.RangeTable {
	for s := range scripts {
		return s
	}
	return nil
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
