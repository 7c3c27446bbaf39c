package local

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// asker asks for a payment and then is content.
var asker = replying{calls("c1", "pay", `{}`), farewell}

type transfer struct {
	To string `json:"to,omitempty"`
}

// office is a process over a table.
type office struct {
	*Machine
	def agent.Definition
}

func newOffice(t *testing.T, table store.Table, blobs store.Blobs, x asl.Store, p *pager) *office {
	t.Helper()
	return newOfficeOf(t, Config{Table: table, Blobs: blobs, Executions: x, Notify: onlyAna(t, p)})
}

// onlyAna tells the one approver on a channel.
func onlyAna(t *testing.T, p *pager) *people.Notifier {
	t.Helper()
	const ana = `{"user:ana": {"groups": ["group:operators"], "slack": "U0ANA"}}`
	staff, err := people.Read([]byte(`{"tenants": {"` + Tenant + `": ` + ana + `}}`))
	require.NoError(t, err)
	return &people.Notifier{Directory: staff, Channels: []people.Channel{p}}
}

// newOfficeOf is an office with what it does not have of its own.
func newOfficeOf(t *testing.T, with Config) *office {
	t.Helper()
	paid := func(context.Context, tool.Call, transfer) (agent.ToolResultData, error) {
		return tool.Text("paid"), nil
	}
	pay := tool.Must(tool.New("pay", "Pays.", run.EffectNonIdempotent, paid, nil))
	set, err := tool.NewSet(pay)
	require.NoError(t, err)
	c := clock.System()
	if with.Model == nil {
		with.Model = asker
	}
	with.Tools, with.Agents = set, func(string) (*agent.Definition, bool) { return nil, false }
	with.Clock, with.IDs = c, clock.NewIDs(c)
	m, err := New(with)
	require.NoError(t, err)
	return &office{m, *define(t, "payer", pay.Spec())}
}

func (o *office) start(t *testing.T) string {
	t.Helper()
	s, err := o.startRun(t)
	require.NoError(t, err)
	synctest.Wait()
	return s.Run
}

func (o *office) startRun(t *testing.T) (run.AgentState, error) {
	return o.Starter.Start(t.Context(), runtime.Start{Tenant: Tenant, Agent: &o.def, Key: "k", Message: message("Pay.")})
}

// What is due is done at its time while the process runs, and nothing is looked at in between.
func TestA15WhatIsDueIsDoneAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &pager{meets: failing(2)}
		counts := fault.NewTable(store.NewMemory())
		o := newOffice(t, counts, store.NewMemoryBlobs(), NewExecutions(store.NewMemory()), d)
		run := o.start(t)
		require.Empty(t, d.said())
		before := counts.Counts()
		time.Sleep(29 * time.Second)
		require.Equal(t, before, counts.Counts(), "nothing is due yet")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, d.said())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"asked"}, d.said())
		l, err := o.Ports.Journal.Load(t.Context(), Tenant, run)
		require.NoError(t, err)
		_, err = o.Desk.Decide(t.Context(), approval.DecisionInput{
			Tenant: Tenant, ID: l.State.Waits()[0].Wait.Approval, Action: approval.Approve, By: clerks,
		})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"asked", "approved"}, d.said())
		_, due, err := o.notices.NextDue(t.Context())
		require.NoError(t, err)
		require.False(t, due)
		require.NoError(t, o.Close())
	})
}

// What was due while no process ran is done when the next one resumes, and of what nobody was told it tells.
func TestC3ResumeDoesWhatIsOverdue(t *testing.T) {
	for name, dies := range map[string]bool{"it could not tell": false, "it died before it told": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &pager{meets: failing(1)}
				table, blobs, x := store.NewMemory(), store.NewMemoryBlobs(), NewExecutions(store.NewMemory())
				first := newOffice(t, table, blobs, x, d)
				if dies {
					d.meets, first.notices.Notifier.Channels = nil, nil
				}
				first.start(t)
				require.NoError(t, first.Close())
				if !dies {
					time.Sleep(time.Hour)
				}
				require.Empty(t, d.said(), "the timer ended with its process")
				next := newOffice(t, table, blobs, x, d)
				require.NoError(t, next.Resume(t.Context(), Tenant, ""))
				synctest.Wait()
				require.Equal(t, []string{"asked"}, d.said())
				require.NoError(t, next.Close())
			})
		})
	}
}

// A process that ends before it has told of a request, as a command does whose run waits, tells first, and once.
func TestC3NobodyLeavesBeforePeopleAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &pager{}
		table, blobs, x := store.NewMemory(), store.NewMemoryBlobs(), NewExecutions(store.NewMemory())
		o := newOffice(t, table, blobs, x, d)
		channels := o.notices.Notifier.Channels
		o.notices.Notifier.Channels = nil
		o.start(t)
		o.notices.Notifier.Channels = channels
		require.Empty(t, d.said())
		require.NoError(t, o.Close())
		require.Equal(t, []string{"asked"}, d.said())
		require.NoError(t, newOffice(t, table, blobs, x, d).Close())
		require.Equal(t, []string{"asked"}, d.said())
	})
}

// A message that is on its way when the process ends arrives, and nothing is said to have failed.
func TestCloseWaitsForAMessageOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &pager{meets: failing(1), takes: 3 * time.Second}
		o := newOffice(t, store.NewMemory(), store.NewMemoryBlobs(), NewExecutions(store.NewMemory()), d)
		var failed atomic.Bool // the first attempt has
		o.notices.Warn = func(what string, err error) {
			if failed.Load() {
				t.Errorf("%s: %v", what, err)
			}
		}
		o.start(t)
		time.Sleep(4 * time.Second)
		failed.Store(true)
		time.Sleep(30 * time.Second)
		require.NoError(t, o.Close())
		require.Equal(t, []string{"asked"}, d.said())
	})
}

// The timer goes on when what is due cannot be read or done.
func TestC3TheTimerOutlivesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &pager{meets: failing(1)}
		table := fault.NewTable(store.NewMemory())
		o := newOffice(t, table, store.NewMemoryBlobs(), NewExecutions(store.NewMemory()), d)
		o.start(t)
		table.Use(fault.OnlyIf(fault.IsIndexQuery, fault.Fail(errors.New("connection reset"))))
		time.Sleep(5 * time.Minute)
		require.Empty(t, d.said())
		table.Use(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"asked"}, d.said())
		require.NoError(t, o.Close())
	})
}
