package show

import (
	"strings"
	"unicode"
)

// invisible is what a person cannot see, or would take for something else, though it is a letter, mark, number,
// punctuation or symbol.
var invisible = []*unicode.RangeTable{
	unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, signs, equivalents,
	{
		R16: []unicode.Range16{
			{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // an empty Braille cell
			{Lo: 0xFFFC, Hi: 0xFFFD, Stride: 1}, // an object; what stands for a broken character
		},
		R32: []unicode.Range32{{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}}, // an empty note head
	},
}

// signs look like the punctuation of ASCII by which addresses, paths, commands and markup are read, and are something
// else. Marks that prose needs are not among them: dashes, quotation marks, and the full-width comma, colon, question
// mark and brackets of Chinese.
var signs = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00B4, Hi: 0x00B4, Stride: 1}, // acute accent
		{Lo: 0x01C0, Hi: 0x01C3, Stride: 1}, // clicks: | and !
		{Lo: 0x02B9, Hi: 0x02BF, Stride: 1}, // primes and apostrophes
		{Lo: 0x02C2, Hi: 0x02DF, Stride: 1}, // modifiers: < > ^ : - and others
		{Lo: 0x0375, Hi: 0x0375, Stride: 1}, {Lo: 0x0384, Hi: 0x0385, Stride: 1},
		// Armenian
		{Lo: 0x055A, Hi: 0x055A, Stride: 1}, {Lo: 0x055D, Hi: 0x055D, Stride: 1}, {Lo: 0x0589, Hi: 0x0589, Stride: 1},
		{Lo: 0x05C3, Hi: 0x05C3, Stride: 1}, {Lo: 0x05F3, Hi: 0x05F4, Stride: 1}, // Hebrew
		// Arabic percent, separators and star
		{Lo: 0x066A, Hi: 0x066D, Stride: 1},
		// Syriac dots
		{Lo: 0x0701, Hi: 0x0704, Stride: 1},
		// hyphens
		{Lo: 0x2010, Hi: 0x2012, Stride: 1},
		// one dot
		{Lo: 0x2024, Hi: 0x2024, Stride: 1},
		// primes
		{Lo: 0x2032, Hi: 0x2037, Stride: 1},
		{Lo: 0x2039, Hi: 0x203A, Stride: 1},                                                                           // < >
		{Lo: 0x203D, Hi: 0x203D, Stride: 1}, {Lo: 0x2041, Hi: 0x2041, Stride: 1}, {Lo: 0x2043, Hi: 0x2044, Stride: 1}, // - /
		{Lo: 0x204E, Hi: 0x204F, Stride: 1}, {Lo: 0x2052, Hi: 0x2053, Stride: 1}, // * ; % ~
		// - / \ * |
		{Lo: 0x2212, Hi: 0x2212, Stride: 1}, {Lo: 0x2215, Hi: 0x2217, Stride: 1}, {Lo: 0x2223, Hi: 0x2223, Stride: 1},
		{Lo: 0x2236, Hi: 0x2236, Stride: 1}, {Lo: 0x223C, Hi: 0x223C, Stride: 1}, // : ~
		{Lo: 0x2571, Hi: 0x2573, Stride: 1}, {Lo: 0x2758, Hi: 0x2758, Stride: 1}, {Lo: 0x276E, Hi: 0x276F, Stride: 1},
		{Lo: 0x27CB, Hi: 0x27CB, Stride: 1}, {Lo: 0x27CD, Hi: 0x27CD, Stride: 1},
		{Lo: 0x29F5, Hi: 0x29F9, Stride: 1}, {Lo: 0x2CF9, Hi: 0x2CFA, Stride: 1}, {Lo: 0x2F02, Hi: 0x2F03, Stride: 1},
		{Lo: 0x3003, Hi: 0x3003, Stride: 1}, {Lo: 0x3014, Hi: 0x3015, Stride: 1}, {Lo: 0x3033, Hi: 0x3033, Stride: 1},
		{Lo: 0x31D3, Hi: 0x31D4, Stride: 1}, {Lo: 0xA4F8, Hi: 0xA4FF, Stride: 1}, // strokes; Lisu dots
		// . : = '
		{Lo: 0xA60E, Hi: 0xA60E, Stride: 1}, {Lo: 0xA6F4, Hi: 0xA6F4, Stride: 1}, {Lo: 0xA789, Hi: 0xA78C, Stride: 1},
		{Lo: 0xFE13, Hi: 0xFE13, Stride: 1}, {Lo: 0xFE30, Hi: 0xFE30, Stride: 1}, {Lo: 0xFE4D, Hi: 0xFE4F, Stride: 1},
		{Lo: 0xFE50, Hi: 0xFE6B, Stride: 1},                                      // small forms
		{Lo: 0xFF02, Hi: 0xFF07, Stride: 1}, {Lo: 0xFF0A, Hi: 0xFF0B, Stride: 1}, // full-width signs
		{Lo: 0xFF0D, Hi: 0xFF0F, Stride: 1}, {Lo: 0xFF1C, Hi: 0xFF1E, Stride: 1}, {Lo: 0xFF20, Hi: 0xFF20, Stride: 1},
		{Lo: 0xFF3B, Hi: 0xFF40, Stride: 1}, {Lo: 0xFF5B, Hi: 0xFF5E, Stride: 1}, {Lo: 0xFF61, Hi: 0xFF65, Stride: 1},
		{Lo: 0xFFE8, Hi: 0xFFEE, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x10101, Hi: 0x10101, Stride: 1}, {Lo: 0x16F51, Hi: 0x16F51, Stride: 1},
		{Lo: 0x1D114, Hi: 0x1D114, Stride: 1}, {Lo: 0x1D16D, Hi: 0x1D16D, Stride: 1}, {Lo: 0x1F7C4, Hi: 0x1F7C4, Stride: 1},
	},
	LatinOffset: 1,
}

// equivalents are characters that look exactly like one or two others; Unicode treats both as the same text.
var equivalents = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0340, Hi: 0x0345, Stride: 1}, {Lo: 0x0374, Hi: 0x0374, Stride: 1}, {Lo: 0x037E, Hi: 0x037E, Stride: 1},
		{Lo: 0x0387, Hi: 0x0387, Stride: 1},
		// of India and Tibet
		{Lo: 0x0958, Hi: 0x095F, Stride: 1}, {Lo: 0x09DC, Hi: 0x09DD, Stride: 1}, {Lo: 0x09DF, Hi: 0x09DF, Stride: 1},
		{Lo: 0x0A33, Hi: 0x0A36, Stride: 3}, {Lo: 0x0A59, Hi: 0x0A5B, Stride: 1}, {Lo: 0x0A5E, Hi: 0x0A5E, Stride: 1},
		{Lo: 0x0B5C, Hi: 0x0B5D, Stride: 1},
		{Lo: 0x0F43, Hi: 0x0F43, Stride: 1}, {Lo: 0x0F4D, Hi: 0x0F57, Stride: 5}, {Lo: 0x0F5C, Hi: 0x0F5C, Stride: 1},
		{Lo: 0x0F69, Hi: 0x0F69, Stride: 1},
		{Lo: 0x0F73, Hi: 0x0F73, Stride: 1}, {Lo: 0x0F75, Hi: 0x0F79, Stride: 1}, {Lo: 0x0F81, Hi: 0x0F81, Stride: 1},
		{Lo: 0x0F93, Hi: 0x0F93, Stride: 1},
		{Lo: 0x0F9D, Hi: 0x0FA7, Stride: 5}, {Lo: 0x0FAC, Hi: 0x0FAC, Stride: 1}, {Lo: 0x0FB9, Hi: 0x0FB9, Stride: 1},
		{Lo: 0x1100, Hi: 0x11FF, Stride: 1}, // the parts of Korean syllables, which are written whole
		{Lo: 0x1F71, Hi: 0x1F7D, Stride: 2}, {Lo: 0x1FBB, Hi: 0x1FBB, Stride: 1}, {Lo: 0x1FBE, Hi: 0x1FBE, Stride: 1},
		{Lo: 0x1FC9, Hi: 0x1FCB, Stride: 2},
		{Lo: 0x1FD3, Hi: 0x1FD3, Stride: 1}, {Lo: 0x1FDB, Hi: 0x1FDB, Stride: 1}, {Lo: 0x1FE3, Hi: 0x1FE3, Stride: 1},
		{Lo: 0x1FEB, Hi: 0x1FEB, Stride: 1},
		{Lo: 0x1FEE, Hi: 0x1FEF, Stride: 1}, {Lo: 0x1FF9, Hi: 0x1FFB, Stride: 2}, {Lo: 0x1FFD, Hi: 0x1FFD, Stride: 1},
		{Lo: 0x2126, Hi: 0x2126, Stride: 1}, {Lo: 0x212A, Hi: 0x212B, Stride: 1}, {Lo: 0x2329, Hi: 0x232A, Stride: 1},
		{Lo: 0x2F00, Hi: 0x2FDF, Stride: 1}, // radicals
		{Lo: 0xA960, Hi: 0xA97F, Stride: 1}, {Lo: 0xD7B0, Hi: 0xD7FF, Stride: 1},
		{Lo: 0xF900, Hi: 0xFAFF, Stride: 1}, // ideographs for compatibility
		// forms of Armenian, Hebrew and Arabic letters
		{Lo: 0xFB13, Hi: 0xFDFF, Stride: 1}, {Lo: 0xFE70, Hi: 0xFEFF, Stride: 1},
	},
	R32: []unicode.Range32{{Lo: 0x1D15E, Hi: 0x1D164, Stride: 1}, {Lo: 0x1D1BB, Hi: 0x1D1C0, Stride: 1},
		{Lo: 0x2F800, Hi: 0x2FA1F, Stride: 1}},
}

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
var rightToLeft = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x0590, Hi: 0x08FF, Stride: 1}, {Lo: 0xFB1D, Hi: 0xFDFF, Stride: 1},
		{Lo: 0xFE70, Hi: 0xFEFF, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x10800, Hi: 0x10FFF, Stride: 1}, {Lo: 0x1E800, Hi: 0x1EFFF, Stride: 1}},
}
