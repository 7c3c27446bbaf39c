package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The command itself, killed with SIGKILL at three random moments (with COUNTERSIGN_KILLS, fifty) of `run --yes` and then
// taken up by `resume` and `approve`, as a person would: the run completes, every file is there once and under its new
// name. TestKilledInAnyStory of internal/local kills the engine at chosen points.
func TestRunKilledAtRandomMomentsAndResumed(t *testing.T) {
	agent := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(agent, "agent.yaml"), []byte(tidy), 0o600))
	began := time.Now()
	c := folder(t, agent)
	require.Zero(t, c.exit(c.run()))
	c.done()
	whole, kills := time.Since(began), 3
	if os.Getenv("COUNTERSIGN_KILLS") != "" {
		kills = 50
	}
	for range kills {
		c := folder(t, agent)
		cmd := c.run()
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(rand.Int64N(int64(whole))), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed, or through before that
		timer.Stop()
		c.carryOn()
		c.done()
	}
}

const tidy = `
name: tidy
system: You tidy.
model: {provider: demo, id: stand-in}
tools:
  - {name: list_directory, root: inbox}
  - {name: read_text, root: inbox}
  - {name: extract_text, root: inbox}
  - {name: move_file, root: inbox}
limits: {interactions: 60}
`

// person is somebody at a terminal, with one store and one folder of notes.
type person struct {
	t                *testing.T
	agent, home, dir string
}

func folder(t *testing.T, agent string) *person {
	t.Helper()
	p := &person{t: t, agent: agent, home: filepath.Join(t.TempDir(), "home"), dir: t.TempDir()}
	notes := map[string]string{"a.txt": "Team meeting\nTuesday", "b.txt": "Shopping list\nmilk", "c.txt": "Flight booked\nLisbon"}
	for name, text := range notes {
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	return p
}

func (p *person) command(args ...string) *exec.Cmd {
	return exec.Command(countersign(p.t), append([]string{"--home", p.home}, args...)...)
}

func (p *person) run() *exec.Cmd {
	return p.command("run", p.agent, "--dir", p.dir, "--message", "Tidy up.", "--key", "k", "--yes")
}

func (p *person) exit(cmd *exec.Cmd) int {
	p.t.Helper()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	code := cmd.ProcessState.ExitCode()
	require.Contains(p.t, []int{0, 3}, code, "%s\n%s", strings.Join(cmd.Args, " "), out)
	return code
}

// carryOn resumes and approves until nothing waits. A run that had not begun when it was killed is started again, by its key.
func (p *person) carryOn() {
	p.t.Helper()
	for p.exit(p.command("resume")) == 3 {
		out, err := p.command("approvals", "--json").Output()
		require.NoError(p.t, err)
		var list struct {
			Items []struct{ ID, Kind string }
		}
		require.NoError(p.t, json.Unmarshal(out, &list), string(out))
		require.NotEmpty(p.t, list.Items)
		for _, a := range list.Items {
			require.Equal(p.t, "call", a.Kind, "move_file can always tell what became of it")
			p.exit(p.command("approve", a.ID))
		}
	}
	p.exit(p.run())
}

func (p *person) done() {
	p.t.Helper()
	entries, err := os.ReadDir(p.dir)
	require.NoError(p.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(p.t, []string{"flight_booked.txt", "shopping_list.txt", "team_meeting.txt"}, names)
	out, err := p.command("runs", "--json").Output()
	require.NoError(p.t, err)
	require.Equal(p.t, 1, strings.Count(string(out), `"natural_end"`), string(out))
}
