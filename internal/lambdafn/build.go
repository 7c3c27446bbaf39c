package lambdafn

import (
	"cmp"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strings"
)

// VersionRequest is the event that every function answers with its Build. It comes by lambda:InvokeFunction alone.
const VersionRequest = `{"countersign":"version"}`

// ParseBuild reads the answer to a VersionRequest.
func ParseBuild(answer []byte) (b Build, err error) {
	if err = json.Unmarshal(answer, &b); err == nil && b.Countersign == "" {
		err = errors.New("countersign: got nothing, want a version")
	}
	return b, err
}

// ModulePath is the module of Countersign, which is a dependency of other people's programs.
const ModulePath = "github.com/countersign/countersign"

// Build describes the build of a program.
type Build struct {
	Module      string `json:"module"`             // of the program
	Version     string `json:"version"`            // of that module; (devel) = built in its checkout
	Revision    string `json:"revision,omitempty"` // of the checkout
	Modified    bool   `json:"modified,omitempty"` // the checkout had changes
	Countersign string `json:"countersign"`        // the version of Countersign in it
	Go          string `json:"go"`
}

// ReadBuild describes the build of this program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "unknown", Countersign: "unknown"}
	}
	v := Build{Module: info.Main.Path, Version: cmp.Or(info.Main.Version, "(devel)"), Go: info.GoVersion}
	v.Countersign = v.Version
	for _, d := range info.Deps {
		if d.Path == ModulePath {
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

func (v Build) String() string {
	text := v.Version
	if v.Revision != "" && !strings.Contains(v.Version, v.Revision[:min(12, len(v.Revision))]) {
		text += " " + v.Revision[:min(12, len(v.Revision))]
	}
	if v.Modified && !strings.Contains(v.Version, "dirty") {
		text += " with changes"
	}
	if v.Module != ModulePath {
		text += ", countersign " + v.Countersign
	}
	return text + ", " + v.Go
}
