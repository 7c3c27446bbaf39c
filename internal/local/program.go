package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/tools"
)

// programGrace is how long a program has to end: behind the end of its input, and behind SIGTERM.
const programGrace = 500 * time.Millisecond

// Programs start MCP servers that are programs on this machine. No deployed function links this package (a test sees to
// that), so that nothing an agent's file says can start a program there. The fields are the variables of this process
// that programs see: PATH and HOME, "" = it has none.
type Programs struct{ Path, Home string }

// Start is a tools.StartProgram. The program has no other environment than PATH, HOME and env, which may replace them,
// and a group of processes of its own, which ends with it. Where this process is killed before that, the program sees
// the end of its input; on Linux it is killed as well, though not what it has started.
func (p Programs) Start(command []string, dir string, env map[string]string) (tools.Program, error) {
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("start program: want a command")
	}
	cmd := exec.Command(command[0], command[1:]...)
	all := map[string]string{}
	if p.Path != "" {
		all["PATH"] = p.Path
	}
	if p.Home != "" {
		all["HOME"] = p.Home
	}
	maps.Copy(all, env)
	cmd.Dir, cmd.Env = dir, []string{} // nil would be all of this process's environment
	for _, name := range slices.Sorted(maps.Keys(all)) {
		cmd.Env = append(cmd.Env, name+"="+all[name])
	}
	cmd.WaitDelay = programGrace / 2 // a stranger may hold its standard error open
	made := &program{cmd: cmd}
	cmd.Stderr = &made.last
	ownGroup(cmd)
	return made, nil
}

type program struct {
	cmd  *exec.Cmd
	last programEnding

	mu    sync.Mutex
	conn  sdk.Connection // nil = it is not started
	ended bool
}

func (p *program) Connect(ctx context.Context) (sdk.Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil, errors.New("start program: it was ended before")
	}
	conn, err := (&sdk.CommandTransport{Command: p.cmd, TerminateDuration: programGrace}).Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("start program: %w", err)
	}
	p.conn = &programConnection{Connection: conn, cmd: p.cmd}
	return p.conn, nil
}

func (p *program) End() {
	p.mu.Lock()
	p.ended = true
	conn := p.conn
	p.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // how it ended is of no use: what it said before counts
	}
}

func (p *program) LastWords() string { return p.last.text() }

// programConnection ends with everything that the program has started.
type programConnection struct {
	sdk.Connection
	cmd  *exec.Cmd
	once sync.Once
	err  error
}

// Close ends the program: it is told so by the end of its input, then asked, then killed; whatever it has started is
// killed.
func (c *programConnection) Close() error {
	c.once.Do(func() {
		c.err = c.Connection.Close()
		killGroup(c.cmd)
	})
	return c.err
}

// programEnding keeps the end of what is written to it. Safe for concurrent use.
type programEnding struct {
	mu   sync.Mutex
	kept []byte
}

// maxProgramEnding is how much an ending keeps, in bytes.
const maxProgramEnding = 2 << 10

func (e *programEnding) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, p[max(0, len(p)-maxProgramEnding):]...)
	e.kept = e.kept[max(0, len(e.kept)-maxProgramEnding):]
	return len(p), nil
}

func (e *programEnding) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.kept) == maxProgramEnding { // half a line is nothing to quote
		return string(e.kept[bytes.IndexByte(e.kept, '\n')+1:])
	}
	return string(e.kept)
}
