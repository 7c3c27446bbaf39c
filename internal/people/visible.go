package people

import (
	"strconv"
	"strings"
	"unicode"
)

// invisible is what a person cannot see, or would take for something else, though it is a letter, mark, number,
// punctuation or symbol.
var invisible = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, signs, equivalents,
	ranges("2800 FFFC-FFFD 1D159"), // an empty Braille cell; what stands for an object or a broken character; a note head
}

// ranges makes a table of code points in hexadecimal, and of ranges of them, in ascending order.
func ranges(texts ...string) *unicode.RangeTable {
	t := &unicode.RangeTable{}
	for _, field := range strings.Fields(strings.Join(texts, " ")) {
		from, to, isRange := strings.Cut(field, "-")
		if !isRange {
			to = from
		}
		lo, err1 := strconv.ParseUint(from, 16, 32)
		hi, err2 := strconv.ParseUint(to, 16, 32)
		n := len(t.R32)
		if err1 != nil || err2 != nil || hi < lo || n > 0 && uint32(lo) <= t.R32[n-1].Hi {
			panic("show: bad range " + field)
		}
		t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
	}
	return t
}

// signs look like the punctuation of ASCII by which addresses, paths, commands and markup are read, and are something
// else. Marks that prose needs are not among them: dashes, quotation marks, and the full-width comma, colon, question
// mark and brackets of Chinese.
var signs = ranges(
	// accents, clicks, primes and modifiers
	"00B4 01C0-01C3 02B9-02BF 02C2-02DF 0375 0384-0385",
	// Armenian, Hebrew, Arabic and Syriac
	"055A 055D 0589 05C3 05F3-05F4 066A-066D 0701-0704",
	// - . ' < > / * ; % ~
	"2010-2012 2024 2032-2037 2039-203A 203D 2041 2043-2044 204E-204F 2052-2053",
	// - / \ * | : ~
	"2212 2215-2217 2223 2236 223C 2571-2573 2758 276E-276F 27CB 27CD 29F5-29F9 2CF9-2CFA 2F02-2F03",
	// strokes; Lisu; . : = '
	"3003 3014-3015 3033 31D3-31D4 A4F8-A4FF A60E A6F4 A789-A78C",
	// small forms
	"FE13 FE30 FE4D-FE4F FE50-FE6B",
	// full-width
	"FF02-FF07 FF0A-FF0B FF0D-FF0F FF1C-FF1E FF20 FF3B-FF40 FF5B-FF5E FF61-FF65 FFE8-FFEE",
	"10101 16F51 1D114 1D16D 1F7C4",
)

// equivalents are characters that look exactly like one or two others; Unicode treats both as the same text.
var equivalents = ranges(
	"0340-0345 0374 037E 0387",
	// of India
	"0958-095F 09DC-09DD 09DF 0A33 0A36 0A59-0A5B 0A5E 0B5C-0B5D",
	// of Tibet
	"0F43 0F4D 0F52 0F57 0F5C 0F69 0F73 0F75-0F79 0F81 0F93 0F9D 0FA2 0FA7 0FAC 0FB9",
	// the parts of Korean syllables, which are written whole
	"1100-11FF",
	"1F71 1F73 1F75 1F77 1F79 1F7B 1F7D 1FBB 1FBE 1FC9 1FCB 1FD3 1FDB 1FE3 1FEB 1FEE-1FEF 1FF9 1FFB 1FFD",
	"2126 212A-212B 2329-232A",
	// radicals, Korean parts, ideographs for compatibility
	"2F00-2FDF A960-A97F D7B0-D7FF F900-FAFF",
	// forms of Armenian, Hebrew and Arabic letters
	"FB13-FDFF FE70-FEFF",
	"1D15E-1D164 1D1BB-1D1C0 2F800-2FA1F",
)

// Visible reports whether a character may stand in a span: letters, marks, digits, punctuation and symbols that are
// visible and not taken for others, and the plain space. unicode.IsPrint accepts more (approvals.md, B3). String also
// checks what a mark follows, and marks letters that look like those of another script.
func Visible(r rune) bool {
	if ' ' <= r && r <= '~' {
		return true
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S) && !unicode.In(r, invisible...)
}

// maxMarks is how many marks may follow a letter. More would overlap the lines above and below.
const maxMarks = 3

// canCarryMark reports whether mark may follow the character before, which belongs to the letter base. An accent of no
// script may follow letters of few scripts: nearly all others have a letter of their own that looks the same. Enclosing
// marks may never.
func canCarryMark(base, before, mark rune) bool {
	switch {
	case unicode.Is(unicode.Me, mark) || !unicode.IsLetter(base):
		return false
	case strings.Contains(joinedPairs, string(before)+string(mark)):
		return false
	case unicode.Is(unicode.Inherited, mark):
		return unicode.In(base, unicode.Arabic, unicode.Syriac, unicode.Devanagari) && (mark < 0x0653 || mark > 0x0655)
	}
	return true
}

// joinedPairs are pairs of signs that look like a single one.
const joinedPairs = "\u09c7\u09be \u09c7\u09d7 \u0b47\u0b56 \u0b47\u0b3e \u0b47\u0b57 \u0b92\u0bd7 \u0bc6\u0bbe " +
	"\u0bc7\u0bbe \u0bc6\u0bd7 \u0c46\u0c56 " +
	"\u0cbf\u0cd5 \u0cc6\u0cd5 \u0cc6\u0cd6 \u0cc6\u0cc2 \u0cca\u0cd5 \u0d46\u0d3e \u0d47\u0d3e \u0d46\u0d57 " +
	"\u0dd9\u0dca \u0dd9\u0dcf \u0ddc\u0dca \u0dd9\u0ddf " +
	"\u0928\u093c \u0930\u093c \u0933\u093c \u0f71\u0f72 \u0f71\u0f74 \u0f71\u0f80 \u0fb2\u0f80 \u0fb3\u0f80 " +
	"\u1025\u102e \u1b05\u1b35 \u1b07\u1b35 \u1b09\u1b35 " +
	"\u1b0b\u1b35 \u1b0d\u1b35 \u1b11\u1b35 \u1b3a\u1b35 \u1b3c\u1b35 \u1b3e\u1b35 \u1b3f\u1b35 \u1b42\u1b35"

// rightToLeft are the blocks of characters that are written from right to left.
var rightToLeft = ranges("0590-08FF FB1D-FDFF FE70-FEFF 10800-10FFF 1E800-1EFFF")

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

// oddLetters are letters that imitate Latin ones or digits: full-width, mathematical, phonetic, old and the like.
var oddLetters = ranges(
	"0132-0133 017F 0184-0185 018D 0196 01A7-01A8 01B7 01BC-01BD 01BF 01C4-01CC 01F1-01F3",
	"021C-021D 0222-0223 0237 0251 0261-0262 0269-026A 0274 0280 028F 0299 029C 029F 02B0-02B8 02E0-02E4",
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
