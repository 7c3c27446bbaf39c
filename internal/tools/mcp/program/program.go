// Package program starts programs that speak over their standard streams, such as MCP servers on this machine. No deployed function links
// it (a test sees to that), so that nothing an agent's file says can start a program there.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// How long a program has to end: behind the end of its input, and behind being asked to.
const grace = 500 * time.Millisecond

// maxStderr is how much of what a program writes to its standard error is passed on, in bytes.
const maxStderr = 64 << 10

// Programs starts programs. Its fields do not change once it is used; then it is safe for concurrent use.
type Programs struct {
	Clock      clock.Clock
	Path, Home string    // PATH and HOME of every program, as this process has them; "" = it has none
	Stderr     io.Writer // where the beginning of each program's standard error goes; nil = nowhere. Its writes may come concurrently
}

// Start starts a program with no other environment than PATH, HOME and env, which may replace them, in a group of processes of its
// own. Closing what it gives ends the whole group and waits for it. Where this process is killed before that, the program sees the end of its
// input; on Linux it is killed as well, though not what it has started.
func (p Programs) Start(command []string, dir string, env map[string]string) (io.ReadWriteCloser, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("start program: want a command")
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, p.environment(env)
	cmd.WaitDelay = grace // a stranger may hold its standard error open
	last := &ending{}
	cmd.Stderr = io.MultiWriter(&beginning{to: p.Stderr, left: maxStderr}, last)
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	cmd.Stdout = theirs
	r := &running{clock: p.Clock, cmd: cmd, in: in, out: out, last: last, ended: make(chan struct{})}
	started := make(chan error, 1)
	p.Clock.Go(func() { r.run(started) })
	err = <-started
	_ = theirs.Close() // the program has its own
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start program: %w", err)
	}
	return r, nil
}

// environment is all that a program sees of this process's.
func (p Programs) environment(env map[string]string) []string {
	all := map[string]string{}
	if p.Path != "" {
		all["PATH"] = p.Path
	}
	if p.Home != "" {
		all["HOME"] = p.Home
	}
	maps.Copy(all, env)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, name+"="+all[name])
	}
	return out
}

// running is a program's standard input and output.
type running struct {
	clock clock.Clock
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *os.File
	last  *ending
	ended chan struct{} // closed once it has ended
	once  sync.Once
}

func (r *running) Read(p []byte) (int, error)  { return r.out.Read(p) }
func (r *running) Write(p []byte) (int, error) { return r.in.Write(p) }

// LastWords is the end of what the program wrote to its standard error: whole once Close has returned.
func (r *running) LastWords() string { return r.last.text() }

// run starts the program and waits for its end, on one thread: where the system ends a program with who has started it, that is the thread.
func (r *running) run(started chan<- error) {
	defer close(r.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := r.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = r.cmd.Wait() // how it ended is of no use: what it said before counts
}

// Close ends the program: it is told so by the end of its input, then asked, then killed; whatever it has started is killed.
func (r *running) Close() error {
	r.once.Do(func() {
		_ = r.in.Close() // it may have ended before
		if !r.within(grace) {
			askGroup(r.cmd)
			r.within(grace)
		}
		killGroup(r.cmd)
		<-r.ended
		_ = r.out.Close()
	})
	return nil
}

// within reports whether the program ends so soon.
func (r *running) within(d time.Duration) bool {
	ctx, cancel := r.clock.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case <-r.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// beginning passes on the beginning of what is written to it and drops the rest.
type beginning struct {
	to   io.Writer
	left int
}

func (b *beginning) Write(p []byte) (int, error) {
	if now := p[:min(len(p), b.left)]; b.to != nil && len(now) > 0 {
		b.left -= len(now)
		_, _ = b.to.Write(now) // nobody is waiting for it
	}
	return len(p), nil
}

// ending keeps the end of what is written to it. Safe for concurrent use.
type ending struct {
	mu   sync.Mutex
	kept []byte
}

// maxEnding is how much an ending keeps, in bytes.
const maxEnding = 2 << 10

func (e *ending) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, p[max(0, len(p)-maxEnding):]...)
	e.kept = e.kept[max(0, len(e.kept)-maxEnding):]
	return len(p), nil
}

func (e *ending) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.kept) == maxEnding { // half a line is nothing to quote
		return string(e.kept[bytes.IndexByte(e.kept, '\n')+1:])
	}
	return string(e.kept)
}
