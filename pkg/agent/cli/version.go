package cli

import (
	"cmp"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
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
	v := readVersion()
	app.Exit(exitDone)
	if p.json {
		return p.writeJSON(v)
	}
	p.printLine("%s %s", filepath.Base(cmp.Or(p.arg0, "countersign")), v)
	return nil
}

// modulePath is the module of Countersign, which is a dependency of other people's programs.
const modulePath = "github.com/countersign/countersign"

// version describes the build of this program.
type version struct {
	Module      string `json:"module"`             // of the program
	Version     string `json:"version"`            // of that module; (devel) = built in its checkout
	Revision    string `json:"revision,omitempty"` // of the checkout
	Modified    bool   `json:"modified,omitempty"` // the checkout had changes
	Countersign string `json:"countersign"`        // the version of Countersign in it
	Go          string `json:"go"`
}

func readVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version{Version: "unknown", Countersign: "unknown"}
	}
	v := version{Module: info.Main.Path, Version: cmp.Or(info.Main.Version, "(devel)"), Go: info.GoVersion}
	v.Countersign = v.Version
	for _, d := range info.Deps {
		if d.Path == modulePath {
			v.Countersign = d.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v version) String() string {
	text := v.Version
	if v.Revision != "" && !strings.Contains(v.Version, v.Revision[:min(12, len(v.Revision))]) {
		text += " " + v.Revision[:min(12, len(v.Revision))]
	}
	if v.Modified && !strings.Contains(v.Version, "dirty") {
		text += " with changes"
	}
	if v.Module != modulePath {
		text += ", countersign " + v.Countersign
	}
	return text + ", " + v.Go
}
