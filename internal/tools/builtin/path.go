package builtin

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/tool"
)

// Bounds of a path, those of the usual file systems.
const (
	maxPathBytes = 4096
	maxNameBytes = 255
)

// checkPath takes a path as a model wrote it and returns it clean: relative, with single slashes, without "." parts;
// the folder itself is ".". Paths that are absolute, have a "..", or characters that could disguise them in an approval
// are refused.
func checkPath(name string) (string, error) {
	parts := strings.Split(name, "/")
	switch {
	case name == "":
		return "", tool.Refusef("the path is empty, the folder itself is %q", ".")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, isDisguising):
		return "", tool.Refusef("the path %s has control characters or is not UTF-8", quotePath(clip(name)))
	case strings.HasPrefix(name, "/"):
		return "", tool.Refusef("the path %s is absolute, only paths relative to the folder are taken", quotePath(clip(name)))
	case slices.Contains(parts, ".."):
		return "", tool.Refusef("the path %s has a %q, which could lead outside of the folder", quotePath(clip(name)), "..")
	case len(name) > maxPathBytes || slices.ContainsFunc(parts, func(s string) bool { return len(s) > maxNameBytes }):
		return "", tool.Refusef("the path %s is too long", quotePath(clip(name)))
	case !filepath.IsLocal(filepath.FromSlash(name)): // a drive or a reserved name, elsewhere than on Unix
		return "", tool.Refusef("the path %s does not stay in the folder", quotePath(clip(name)))
	}
	return path.Clean(name), nil
}

// isDisguising reports characters that end a line or turn its direction: control characters and the bidirectional
// overrides and isolates (Unicode TR9). Other invisible characters stay allowed: real names have them, as macOS's
// screenshots do.
func isDisguising(r rune) bool {
	return unicode.IsControl(r) || (r >= 0x202A && r <= 0x202E) || (r >= 0x2066 && r <= 0x2069) || r == 0x2028 || r == 0x2029
}

// quotePath quotes a path for a message. It escapes characters that could disguise the path and no others.
func quotePath(p string) string {
	if !utf8.ValidString(p) || strings.ContainsFunc(p, isDisguising) {
		return strconv.QuoteToASCII(p)
	}
	return `"` + p + `"`
}

// clip shortens a path that is refused anyway.
func clip(p string) string {
	const most = 100
	if utf8.RuneCountInString(p) <= most {
		return p
	}
	return string([]rune(p)[:most]) + "..."
}
