package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/standins"
)

// bootstrap is the JSON line of a function's bootstrap.
type bootstrap struct {
	Work  string  `json:"work"` // bootstrap
	Name  string  `json:"function"`
	MB    float64 `json:"mb"`       // of 10^6 bytes, for the processor that template.yaml names
	Ready float64 `json:"ready_ms"` // from the start of the process to its first request for an event; a median
}

// starts is how often each bootstrap is started.
const starts = 11

// deployedArch is the processor that template.yaml names, and with it the Makefile.
const deployedArch = "arm64"

// bootstraps builds every function as `sam build` does and starts it under a Runtime API that has no event. The module
// is the current directory.
func (b *bench) bootstraps(ctx context.Context) ([]bootstrap, error) {
	mains, err := filepath.Glob("functions/*/main.go")
	if err != nil || len(mains) == 0 {
		return nil, errors.Join(errors.New("no functions/*/main.go: want the module's directory"), err)
	}
	var all []bootstrap
	for _, file := range mains {
		m := bootstrap{Work: "bootstrap", Name: filepath.Base(filepath.Dir(file))}
		deployed, err := b.build(ctx, m.Name, deployedArch)
		if err != nil {
			return nil, err
		}
		info, err := os.Stat(deployed)
		if err != nil {
			return nil, err
		}
		m.MB = float64(info.Size()) / 1e6
		here := deployed
		if runtime.GOARCH != deployedArch {
			if here, err = b.build(ctx, m.Name, runtime.GOARCH); err != nil {
				return nil, err
			}
		}
		if m.Ready, err = b.ready(ctx, m.Name, here); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// build makes a function's bootstrap by the Makefile's own target.
func (b *bench) build(ctx context.Context, name, arch string) (string, error) {
	dir := filepath.Join(b.dir, name+"-"+arch)
	target := "build-" + strings.ToUpper(name[:1]) + name[1:] + "Function"
	log, err := exec.CommandContext(ctx, "make", target, "ARTIFACTS_DIR="+dir, "LAMBDA_ARCH="+arch).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", target, err, log)
	}
	return filepath.Join(dir, "bootstrap"), nil
}

// ready is a bootstrap's median time to its first request for an event, in milliseconds.
func (b *bench) ready(ctx context.Context, name, file string) (float64, error) {
	f := standins.StartLambda(standins.LambdaConfig{Name: name, Bootstrap: file, Timeout: time.Minute, Clock: b.clock,
		Log: io.Discard, Env: []string{
			"COUNTERSIGN_TABLE=runs", "COUNTERSIGN_BUCKET=blobs",
			"COUNTERSIGN_STATE_MACHINE=arn:aws:states:eu-central-1:123456789012:stateMachine:bench",
			"COUNTERSIGN_KEYRING=KeyRing",
			"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
			"AWS_ENDPOINT_URL=http://127.0.0.1:1",
		}})
	var took []float64
	for range starts {
		d, err := f.ColdStart(ctx)
		if err != nil {
			return 0, errors.Join(err, f.Close())
		}
		took = append(took, micros(d)/1000)
	}
	return median(took), f.Close()
}
