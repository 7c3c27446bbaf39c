package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/bolt"

	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/builtin"
)

// The victim is this test binary started again: it carries one run of the tidy agent to its end, approving every move, and kills itself
// with SIGKILL at the point it is told. Points are every write to the table and every entering of a tool, before and after.
const victimVar = "COUNTERSIGN_TEST_VICTIM" // home:inbox:point, point 0 = live

func TestMain(m *testing.M) {
	if plan := os.Getenv(victimVar); plan != "" {
		if err := victim(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if plan := os.Getenv(payerVar); plan != "" {
		if err := payerMain(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if plan := os.Getenv(storyVar); plan != "" {
		if err := storyMain(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// reaper counts points and kills the process at one of them.
type reaper struct {
	at   int64
	seen atomic.Int64
}

func (r *reaper) point() {
	if r.seen.Add(1) == r.at {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {}
	}
}

type mortalTable struct {
	store.Table
	*reaper
}

func (t mortalTable) Write(ctx context.Context, ops ...store.Op) error {
	t.point()
	err := t.Table.Write(ctx, ops...)
	t.point()
	return err
}

// mortalTools also keep a ledger of moves that happened.
type mortalTools struct {
	set    *tool.Set
	ledger string
	*reaper
}

func (m mortalTools) Lookup(name string) (tool.Tool, bool) {
	t, ok := m.set.Lookup(name)
	return mortalTool{t, m}, ok
}

type mortalTool struct {
	tool.Tool
	mortalTools
}

func (m mortalTool) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	m.point()
	res, err := m.Tool.Call(ctx, c)
	if err == nil && !res.IsError && c.Name == "move_file" {
		if err := note(m.ledger, string(c.Args)); err != nil {
			return res, err
		}
	}
	m.point()
	return res, err
}

func (m mortalTool) Reconcile(ctx context.Context, c tool.Call) (tool.Outcome, agent.ToolResultData, error) {
	r, ok := m.Tool.(tool.Reconciler)
	if !ok {
		return tool.OutcomeUnknown, agent.ToolResultData{}, nil
	}
	return r.Reconcile(ctx, c)
}

func note(ledger, line string) error {
	f, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

func victim(plan string) error {
	parts := strings.Split(plan, ":")
	home, inbox := parts[0], parts[1]
	at, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return err
	}
	db, err := bolt.Open(filepath.Join(home, "store.db"), bolt.Options{LockWait: 5 * time.Second})
	if err != nil {
		return err
	}
	m, err := mortalMachine(db, home, &reaper{at: at})
	if err != nil {
		return err
	}
	if err := carry(context.Background(), m, inbox); err != nil {
		return err
	}
	return errors.Join(m.Engine.Close(), db.Close())
}

func mortalMachine(db *bolt.Table, home string, r *reaper) (*Machine, error) {
	blobs, err := bolt.OpenFolder(filepath.Join(home, "blobs"))
	if err != nil {
		return nil, err
	}
	tools, err := builtin.PerRun()
	if err != nil {
		return nil, err
	}
	set, err := tool.NewSet(tools...)
	if err != nil {
		return nil, err
	}
	t, clk := mortalTable{db, r}, clock.System()
	return New(Config{
		Table: t, Blobs: blobs, Model: DemoModel{}, Tools: mortalTools{set, filepath.Join(home, "ledger"), r},
		Agents: func(string) (*agent.Definition, bool) { return nil, false }, Clock: clk, IDs: ids.System(clk), Executions: NewExecutions(t), Warm: 4,
	})
}

// carry starts or resumes the run and approves whatever it asks.
func carry(ctx context.Context, m *Machine, inbox string) error {
	if err := m.Resume(ctx, Tenant); err != nil {
		return err
	}
	def, err := tidyDefinition(inbox)
	if err != nil {
		return err
	}
	s, err := m.Starter.Start(ctx, runtime.Start{Tenant: Tenant, Agent: def, Key: "k", Message: []run.UserBlock{{Block: run.Text{Text: "Tidy up."}}}})
	if err != nil {
		return err
	}
	for {
		h, err := m.Ports.Journal.Head(ctx, Tenant, s.Run)
		if err != nil {
			return err
		}
		if h.Status == run.RunDone {
			return nil
		}
		if err := approveAll(ctx, m); err != nil {
			return err
		}
		if err := m.Ports.Clock.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

func approveAll(ctx context.Context, m *Machine) error {
	pending, _, err := approval.List(ctx, m.Ports.Table, Tenant, approval.Query{Status: approval.Pending})
	if err != nil {
		return err
	}
	for _, a := range pending {
		by := policy.Principal{ID: "user:local", Groups: []string{"group:operators"}}
		if a.Kind == approval.KindOutcome {
			return fmt.Errorf("outcome of call %s is unknown: move_file can always tell", a.Call())
		}
		if _, err := m.Desk.Decide(ctx, approval.DecisionInput{Tenant: Tenant, ID: a.ID, Action: approval.Approve, By: by}); err != nil {
			return err
		}
	}
	return nil
}

// life is one process of the victim; killed says how it ended.
func life(t *testing.T, home, inbox string, point int, kill time.Duration) (killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%s:%d", victimVar, home, inbox, point))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	if kill > 0 {
		timer := time.AfterFunc(kill, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		defer timer.Stop()
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) }) // it says where it stands
	defer stuck.Stop()
	err := cmd.Wait()
	if err == nil {
		return false
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "the victim failed by itself: %v\n%s", err, stderr.String())
	return true
}

// wholeAndOnce checks what the run must have done, however often it died.
func wholeAndOnce(t *testing.T, home, inbox string) {
	t.Helper()
	entries, err := os.ReadDir(inbox)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"shopping_list.txt", "team_meeting.txt"}, names)
	moves := map[string]int{}
	f, err := os.Open(filepath.Join(home, "ledger"))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			moves[lines.Text()]++
		}
		require.NoError(t, f.Close())
	}
	for move, times := range moves {
		require.Equal(t, 1, times, "%s happened more than once", move)
	}
	db, err := bolt.Open(filepath.Join(home, "store.db"), bolt.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	runID := agent.RunID(Tenant, "tidy", "k")
	entriesOf, err := store.NewJournal(db, 0).Entries(t.Context(), Tenant, runID, 0, 0)
	require.NoError(t, err)
	s, err := run.Fold(run.AgentState{}, entriesOf)
	require.NoError(t, err)
	require.Equal(t, run.ReasonNaturalEnd, s.Reason)
	for _, c := range s.Calls() {
		require.Equal(t, run.StatusSucceeded, c.Status, c.ID)
	}
}

// Killed at every commit point and around every tool, then resumed: the run completes, no move happens twice, nothing is lost.
func TestKilledAtEveryPoint(t *testing.T) {
	var points int
	for point := 1; ; point++ {
		home, inbox := t.TempDir(), notes(t)
		if !life(t, home, inbox, point, 0) {
			points = point - 1
			wholeAndOnce(t, home, inbox)
			break
		}
		require.False(t, life(t, home, inbox, 0, 0), "point %d", point)
		wholeAndOnce(t, home, inbox)
	}
	require.Greater(t, points, 30)
	t.Logf("killed at %d points, resumed each time", points)
}

// Killed at twenty random moments, again and again until it gets through.
func TestKilledAtRandomMoments(t *testing.T) {
	for range 20 {
		home, inbox := t.TempDir(), notes(t)
		for within := 120 * time.Millisecond; life(t, home, inbox, 0, time.Duration(rand.Int64N(int64(within)))); within *= 2 {
			continue // on a slow machine a process needs longer to get anywhere
		}
		wholeAndOnce(t, home, inbox)
	}
}
