package cli

import (
	"cmp"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/countersign/countersign/internal/lambdafn"
)

// invocation returns the words with which the person called this program. For `go run` it names the package, because
// the compiled file is temporary.
func (p *program) invocation() []string {
	if strings.Contains(filepath.ToSlash(p.arg0), "/go-build") {
		if info, ok := debug.ReadBuildInfo(); ok && strings.Contains(info.Path, "/") {
			return []string{"go", "run", info.Path}
		}
	}
	return []string{cmp.Or(p.arg0, "countersign")}
}

func (p *program) commandName() string { return strings.Join(p.invocation(), " ") }

// versionFlag prints the version and exits.
type versionFlag bool

// BeforeReset is called by kong as soon as the flag is found, before the rest of the command line is checked.
func (versionFlag) BeforeReset(app *kong.Kong, p *program) error {
	v := lambdafn.ReadBuild()
	app.Exit(exitDone)
	if p.json {
		return p.writeJSON(v)
	}
	p.printLine("%s %s", filepath.Base(cmp.Or(p.arg0, "countersign")), v)
	return nil
}
