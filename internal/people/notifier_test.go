package people

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Whoever may decide is told, on each channel that reaches them, once: whoever asks again tells those who were not.
func TestApproversAreTold(t *testing.T) {
	w := told(t)
	require.Equal(t, "https://countersign.example/a1/user:ana/email", w.sent[0].link)
	require.Equal(t, "a1", w.sent[0].shown)
	require.Equal(t, []string{"ana email asked", "ana slack asked", "ben email asked"}, w.takeSent())
	w.notifyPeople()
	require.Empty(t, w.takeSent())
	w.people.people = append(w.people.people, w.people.people[3])
	w.people.people[4].ID, w.people.people[4].Groups = "user:eve", []string{"group:finance"}
	w.notifyPeople()
	require.Equal(t, []string{"eve email asked"}, w.takeSent(), "who joined since")
	require.Empty(t, w.warned)
}

// Nobody is told of what they do not decide, nor where they do not want to be told.
func TestWhoIsTold(t *testing.T) {
	type request = approval.Approval
	const all = "ana email, ana slack, ben email"
	for name, c := range map[string]struct {
		request func(a *request)
		people  func(d *testDirectory)
		want    string
	}{
		"a person":  {func(a *request) { a.Approvers = []string{"user:dan"} }, nil, "dan email"},
		"each once": {func(a *request) { a.Approvers = []string{"user:ben", "group:finance"} }, nil, all},
		"nobody":    {func(a *request) { a.Approvers = nil }, nil, ""},
		"those above, too": {
			func(a *request) { a.Above = [][]string{{"user:ben", "user:cleo"}, {"group:finance"}} }, nil, "ben email",
		},
		"above and not below": {func(a *request) { a.Above = [][]string{{"user:cleo"}} }, nil, ""},
		"four eyes": {
			func(a *request) { a.FourEyes, a.Requesters = true, []string{"user:ana"} }, nil, "ben email",
		},
		"a requester who may decide": {func(a *request) { a.Requesters = []string{"user:ben"} }, nil, all},
		"who has had their say": {
			func(a *request) { a.Decisions, a.Quorum = []approval.Decision{{By: "user:ana"}}, 2 }, nil, "ben email",
		},
		"another tenant's": {func(a *request) { a.Approvers = []string{"group:elsewhere"} }, nil, ""},
		"tools":            {tools("group:finance", "group:board"), nil, all + ", cleo slack"},
		"tools, one decided": {func(a *request) {
			tools("group:finance", "group:board")(a)
			a.Permissions[0].Verdict = run.ToolGranted
		}, nil, "cleo slack"},
		"one channel": {
			nil, func(d *testDirectory) { d.people[0].Notify = []string{"slack"} }, "ana slack, ben email",
		},
		"channels in order": {
			nil, func(d *testDirectory) { d.people[0].Notify = []string{"slack", "email", "pager"} },
			"ana slack, ana email, ben email",
		},
		"no channel": {nil, func(d *testDirectory) { d.people[0].Notify = []string{} }, "ben email"},
		"whom it cannot get": {
			nil, func(d *testDirectory) { d.people[0].Notify, d.people[0].Slack = []string{"slack"}, "" }, "ben email",
		},
	} {
		w, a := newFixture(t), newRequest()
		if c.people != nil {
			c.people(w.people)
		}
		if c.request != nil {
			c.request(&a)
		}
		w.store(a)
		w.notifyPeople()
		require.Equal(t, c.want, strings.ReplaceAll(strings.Join(w.takeSent(), ", "), " asked", ""), name)
	}
}

// tools asks about two tools.
func tools(first, second string) func(a *approval.Approval) {
	return func(a *approval.Approval) {
		a.Kind, a.Approvers, a.Tools = approval.KindTools, []string{first, second}, []string{"t0", "t1"}
		for i, who := range []string{first, second} {
			a.Permissions = append(a.Permissions, approval.Permission{
				Tool: fmt.Sprint("t", i), Calls: []approval.BlockedCall{{Call: fmt.Sprint("c", i), Args: []byte("{}"), Approvers: []string{who}}},
			})
		}
	}
}

// A15: who has not decided is reminded as often as the rule says, until it is decided, and not after.
func TestA15RemindersComeUntilSomebodyDecides(t *testing.T) {
	w := told(t, remindEvery(4*time.Hour), escalatesTo(20*time.Hour, "group:board"))
	w.takeSent()
	require.Empty(t, w.sweep(3 * time.Hour)[CountReminded])
	require.Equal(t, map[string]int64{CountReminded: 3}, w.sweep(4*time.Hour))
	require.Equal(t, []string{"ana email reminder", "ana slack reminder", "ben email reminder"}, w.takeSent())
	require.Empty(t, w.sweep(4*time.Hour))
	require.Equal(t, map[string]int64{CountReminded: 3}, w.sweep(15*time.Hour), "those that nobody sent are one")
	require.Equal(t, map[string]int64{CountReminded: 3}, w.sweep(16*time.Hour), "and the next one keeps its hour")
	w.takeSent()
	w.closeAs(approval.Denied)
	require.Equal(t, map[string]int64{CountUpdated: 4}, w.sweep(20*time.Hour))
	require.Empty(t, w.takeSent())
	require.Equal(t, []string{"C1 denied", "C2 denied", "C3 denied", "C4 denied"}, w.updated)
	require.Zero(t, w.load().EscalatedAt)
	require.Equal(t, time.Duration(-1), w.nextDue())
}

// A15: who is asked as well by an escalation that is taken along with another one, before it is due, is told then.
func TestA15EscalationsTakenTogether(t *testing.T) {
	w := newFixture(t)
	w.store(newRequest(escalatesTo(6*time.Hour, "group:board")))
	w.store(newRequest(escalatesTo(6*time.Hour+5*time.Second, "group:board"), func(a *approval.Approval) { a.ID = "a2" }))
	_, err := w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true, ignoresDue: true}, "a1", "a2")
	require.NoError(t, err)
	w.sweep(6*time.Hour - time.Second)
	w.takeSent()
	require.EqualValues(t, 2, w.sweep(6 * time.Hour)[CountEscalated])
	require.Equal(t, []string{"cleo slack escalated", "cleo slack escalated"}, w.takeSent())
}

// A15: escalation needs nobody who could be told.
func TestA15EscalationWithoutChannels(t *testing.T) {
	w := newFixture(t)
	w.n.Channels, w.n.Directory = nil, nil
	w.store(newRequest(escalatesTo(6*time.Hour, "group:board")))
	w.notifyPeople()
	require.Equal(t, 6*time.Hour, w.nextDue())
	require.Equal(t, map[string]int64{CountEscalated: 1}, w.sweep(6*time.Hour))
	require.Equal(t, day.Add(6*time.Hour), w.load().EscalatedAt)
	w.closeAs(approval.Approved)
	w.sweep(24 * time.Hour)
	require.Equal(t, time.Duration(-1), w.nextDue())
}

// C3: a message that does not get through is tried again, each time later: the first one until it does, however long
// the channel is down, a reminder until the next one.
func TestC3AMessageIsTriedAgain(t *testing.T) {
	w := newFixture(t)
	w.slack.failures = 1000
	w.store(newRequest())
	w.notifyPeople()
	require.Equal(t, []string{"tell somebody of approval a1 by slack"}, w.warned)
	require.Equal(t, 30*time.Second, w.nextDue())
	require.Empty(t, w.sweep(29*time.Second))
	for w.nextDue() < 4*time.Hour {
		w.sweep(w.nextDue())
	}
	require.Equal(t, []string{"ana email asked", "ben email asked"}, w.takeSent())
	require.Less(t, len(w.warned), 4*maxTries)
	w.slack.failures = 0
	w.sweep(w.nextDue())
	require.Equal(t, []string{"ana slack asked"}, w.takeSent())

	w = told(t, remindEvery(4*time.Hour))
	w.slack.failures = 1000
	for w.sweep(4 * time.Hour); w.nextDue() < 8*time.Hour; {
		w.sweep(w.nextDue())
	}
	require.Equal(t, 1000-maxTries, w.slack.failures)
}

// C3: a directory that cannot be asked is asked again.
func TestC3TheDirectoryIsAskedAgain(t *testing.T) {
	w := newFixture(t)
	w.people.failing = true
	w.store(newRequest())
	_, err := w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true, ignoresDue: true}, "a1")
	require.ErrorIs(t, err, errReset)
	for _, after := range []time.Duration{time.Minute, 90 * time.Second, 3 * time.Minute} {
		w.clock.AdvanceTo(day.Add(after))
		_, err = w.n.ProcessDue(context.Background(), 10)
	}
	require.ErrorIs(t, err, errReset)
	w.people.failing = false
	w.sweep(w.nextDue())
	require.Len(t, w.takeSent(), 3)
}

// C3: nothing is told of, and nothing is written for, a request that needs no notice.
func TestC3NothingToTellIsNothingToWrite(t *testing.T) {
	w := newFixture(t)
	w.n.Channels = nil
	a := w.store(newRequest(remindEvery(time.Hour)))
	w.notifyPeople()
	w.ensure(a)
	w.n.NotifyChange(context.Background(), a)
	require.Zero(t, w.writes())
	require.Equal(t, time.Duration(-1), w.nextDue())
}

// C3: whatever the notice holds, a word of the request is not among it.
func TestC3TheNoticeSaysNothingOfTheRequest(t *testing.T) {
	w := newFixture(t)
	w.store(newRequest(remindEvery(time.Hour), func(a *approval.Approval) {
		a.Thread = []approval.Remark{{By: "user:ana", Text: "Whose account is it?"}}
	}))
	w.notifyPeople()
	w.sweep(time.Hour)
	it, found, err := w.table.Get(context.Background(), noticeKey(acme, "a1"))
	require.NoError(t, err)
	require.True(t, found)
	for _, secret := range []string{"DE89", "iban", "100 EUR", "refunds", "Whose", "acme.example", "U1"} {
		require.NotContains(t, string(it.Body), secret)
	}
}

// C3: who took a decision and died before anybody's message was updated has made it due.
func TestC3ADecisionIsDueAtOnce(t *testing.T) {
	w := told(t)
	w.table.Use(fault.OnlyIf(fault.IsWrite, fault.Lose(errDied)))
	w.n.NotifyChange(context.Background(), w.closeAs(approval.Approved))
	w.table.Use(nil)
	require.Empty(t, w.updated)
	require.Equal(t, []string{"tell of approval a1"}, w.warned)
	require.Equal(t, map[string]int64{CountUpdated: 1}, w.sweep(0))
}

// A15: who was told late is reminded with the others, not at once.
func TestA15WhoIsToldLateIsNotRemindedAtOnce(t *testing.T) {
	w := told(t, remindEvery(time.Hour))
	w.takeSent()
	w.people.people[3].Groups = []string{"group:finance"}
	w.sweep(9*time.Hour + time.Minute)
	require.Equal(t, []string{"ana email reminder", "ana slack reminder", "ben email reminder", "dan email asked"}, w.takeSent())
	w.notifyPeople()
	require.Empty(t, w.takeSent())
	require.Equal(t, 10*time.Hour, w.nextDue())
}

// An update that does not get through is tried again, and given up.
func TestUpdatesAreTriedAgain(t *testing.T) {
	w := told(t)
	w.slack.failures = 99
	w.n.NotifyChange(context.Background(), w.closeAs(approval.Approved))
	for i := 0; w.nextDue() >= 0; i++ {
		require.Less(t, i, 20)
		w.sweep(w.nextDue())
	}
	require.Equal(t, 99-maxTries, w.slack.failures)
}

// Of a person's messages that are written down in two parts, the one that was not updated is tried again.
func TestUpdatesOfManyAreTriedAgain(t *testing.T) {
	for _, failing := range []int{batchSize, batchSize + 1} {
		w := newFixture(t)
		w.people.people = nil
		for i := range batchSize/3 + 1 { // each has three messages
			id := fmt.Sprintf("user:p%d", i)
			w.people.people = append(w.people.people, Person{ID: id, Groups: []string{"group:finance"}, Slack: "U1"})
		}
		w.store(newRequest(remindEvery(time.Hour)))
		w.notifyPeople()
		w.sweep(time.Hour)
		w.sweep(2 * time.Hour)
		tried := 0
		w.slack.beforeSend = func() error {
			if tried++; tried == failing {
				return errReset
			}
			return nil
		}
		w.n.NotifyChange(context.Background(), w.closeAs(approval.Approved))
		for i := 0; w.nextDue() >= 0; i++ {
			require.Less(t, i, 20)
			w.sweep(w.nextDue())
		}
		for ref := range 3 * len(w.people.people) {
			require.Contains(t, w.updated, fmt.Sprintf("C%d approved", ref+1), "update %d failed", failing)
		}
	}
}

// A request that is called off tells nobody: its messages are looked after all the same, before it would have expired.
func TestARequestThatIsCalledOffIsNoticed(t *testing.T) {
	w := told(t)
	w.closeAs(approval.Cancelled)
	require.Less(t, w.nextDue(), time.Hour)
	w.sweep(w.nextDue())
	require.Equal(t, []string{"C1 cancelled"}, w.updated)
}

// An expiry is the run's word: the notice waits for it.
func TestA15ExpiryUpdates(t *testing.T) {
	w := told(t, remindEvery(8*time.Hour))
	w.sweep(8 * time.Hour)
	w.takeSent()
	require.Empty(t, w.sweep(24*time.Hour), "no reminder at the very end")
	require.Equal(t, 24*time.Hour+time.Minute, w.nextDue())
	w.closeAs(approval.Expired)
	require.Equal(t, map[string]int64{CountUpdated: 2}, w.sweep(24*time.Hour+time.Minute))
	require.Equal(t, time.Duration(-1), w.nextDue())
}

// A question is for the requesters, an answer for who asked.
func TestThreadTellsWhoIsMeant(t *testing.T) {
	w := told(t)
	w.takeSent()
	say := func(by string) {
		a := w.update(func(a *approval.Approval) {
			a.Thread = append(a.Thread, approval.Remark{By: by, At: w.clock.Now(), Text: "?"})
		})
		w.n.NotifyChange(context.Background(), a)
	}
	say("user:ben")
	require.Equal(t, []string{"dan email question"}, w.takeSent())
	say("user:dan")
	require.Equal(t, []string{"ben email answer"}, w.takeSent())
	w.email.failures = 1
	say("user:ana")
	require.Empty(t, w.takeSent())
	w.sweep(30 * time.Second)
	require.Equal(t, []string{"dan email question"}, w.takeSent())
	w.sweep(time.Hour)
	require.Empty(t, w.takeSent())
	say("user:dan")
	require.Equal(t, []string{"ana email answer", "ana slack answer", "ben email answer"}, w.takeSent())
	w.n.NotifyChange(context.Background(), w.closeAs(approval.Denied))
	require.Equal(t, []string{"C1 denied", "C2 denied"}, w.updated, "the answer, too")
}

// A question that does not get through on one channel is not asked again on another, and each of many who asked hears
// the answer.
func TestARemarkIsTriedAgainWhereItFailed(t *testing.T) {
	w := newFixture(t)
	for i := range batchSize {
		w.people.people = append(w.people.people, Person{ID: fmt.Sprint("user:p", i), Groups: []string{"group:finance"}, Email: "p@acme.example"})
	}
	w.people.people[3].Slack, w.slack.failures = "U4", 10_000
	w.store(newRequest(func(a *approval.Approval) {
		for _, p := range w.people.people {
			a.Thread = append(a.Thread, approval.Remark{By: p.ID, At: day, Text: "? " + p.ID})
		}
		a.Thread[3].Text = "!"
	}))
	tries := 0
	w.email.beforeSend = func() error {
		if tries++; tries == 2*batchSize+5 { // among the questions
			return errReset
		}
		return nil
	}
	for at := time.Duration(0); at < time.Hour; at += time.Minute {
		w.notifyPeople()
		w.clock.AdvanceTo(day.Add(at))
	}
	got, remarks := map[string]int{}, map[string]bool{}
	for _, m := range w.sent {
		if m.occasion == Question {
			remarks[m.shown] = true
		}
	}
	for _, line := range w.takeSent() {
		got[line]++
	}
	require.Len(t, remarks, len(w.people.people)-1, "each message shows its own")
	require.Equal(t, 1, got["ana email answer"])
	require.Equal(t, 1, got["ben email answer"])
	require.Equal(t, len(w.people.people)-1, got["dan email question"], "one for each remark but his own")
	n, err := loadNotice(t.Context(), w.table, acme, "a1")
	require.NoError(t, err)
	require.Empty(t, n.Missed, "what fails for ever is given up")
}

// Whoever joins the approvers is told soon, also where nobody was told before, or is reminded.
func TestWhoJoinsTheApproversIsTold(t *testing.T) {
	for _, group := range []string{"group:later", "group:sales"} { // of nobody, and of dan
		w := told(t, func(a *approval.Approval) { a.Approvers = []string{group} })
		w.takeSent()
		w.people.people[1].Groups = []string{group}
		w.sweep(minUpdateCheck)
		require.Equal(t, []string{"ben email asked"}, w.takeSent())
	}
}

// Of thousands of approvers five hundred are told, among them those who join by the escalation, in one item of the
// table.
func TestFiveHundredAreTold(t *testing.T) {
	w := newFixture(t)
	w.people.people = nil
	for i := range 3000 {
		id, groups := fmt.Sprintf("user:somebody-with-a-long-name-%d@acme.example", i), []string{"group:finance"}
		if i > 2990 {
			groups = []string{"group:board"}
		}
		w.people.people = append(w.people.people, Person{ID: id, Groups: groups, Email: "ana@acme.example", Slack: "U1"})
	}
	w.store(newRequest(remindEvery(time.Hour), escalatesTo(6*time.Hour, "group:board"), func(a *approval.Approval) { a.Digest = strings.Repeat("d", 64) }))
	w.notifyPeople()
	require.Equal(t, 2*(maxRecipients-9), len(w.takeSent()))
	w.sweep(6 * time.Hour)
	require.Equal(t, 2*maxRecipients, len(w.sent))
	require.Equal(t, Escalated, w.sent[2*maxRecipients-1].occasion)
	w.sweep(8 * time.Hour)
	it, _, err := w.table.Get(t.Context(), noticeKey(acme, "a1"))
	require.NoError(t, err)
	require.Less(t, len(it.Body), 350_000, "the table takes 400 KB")
}

// What one request's notice does wrong stops no other one: neither one that makes no sense nor one that the table
// cannot read.
func TestOneBrokenNoticeStopsNoOther(t *testing.T) {
	for name, unreadable := range map[string]bool{"broken": false, "unreadable": true} {
		t.Run(name, func(t *testing.T) {
			w := told(t, remindEvery(time.Hour))
			w.takeSent()
			for key, it := range map[string]store.Item{"A": {}, "N": {
				Attrs: map[string]store.Value{revAttr: store.Num(1)}, Index: store.Shard(dueIndex, "r0"), IndexSort: dueSortKey(day, acme, "r0", "a0"),
			}} {
				it.PK, it.SK, it.Body = "T#acme#APPROVAL#a0", key, []byte("broken")
				require.NoError(t, w.table.Table.Write(context.Background(), store.Op{Kind: store.Put, Item: it}))
			}
			if unreadable {
				w.table.Damage(store.Key{PK: "T#acme#APPROVAL#a0", SK: "N"})
			}
			w.clock.AdvanceTo(day.Add(time.Hour))
			did, err := w.n.ProcessDue(context.Background(), 1)
			require.ErrorContains(t, err, "a0")
			require.ErrorIs(t, err, store.ErrDamaged)
			if !unreadable { // what is broken is due later
				require.Empty(t, did)
				did, err = w.n.ProcessDue(context.Background(), 1)
				require.NoError(t, err)
			}
			require.EqualValues(t, 3, did[CountReminded])
		})
	}
}

// Notices of different runs stand in different shards of the index, and what is due first comes first.
func TestDueInShards(t *testing.T) {
	w, shards := newFixture(t), map[string]bool{}
	w.n.Channels = []Channel{w.email}
	for i := range 4 {
		a := newRequest(remindEvery(time.Duration(4-i) * time.Minute))
		a.ID, a.Run = fmt.Sprint("a", i), fmt.Sprint("r", i)
		require.NotEmpty(t, w.ensure(w.store(a)))
		it, _, err := w.table.Get(t.Context(), noticeKey(acme, a.ID))
		require.NoError(t, err)
		shards[it.Index] = true
	}
	require.Greater(t, len(shards), 1)
	require.Equal(t, time.Minute, w.nextDue())
	w.clock.AdvanceTo(day.Add(4 * time.Minute))
	for i := range 4 {
		w.sent = nil
		_, err := w.n.ProcessDue(t.Context(), 1)
		require.NoError(t, err)
		require.Contains(t, w.sent[0].shown, fmt.Sprint("a", 3-i))
	}
}

// A notice is due when the index says so, whatever fraction of a millisecond it was written at.
func TestDueIsInMilliseconds(t *testing.T) {
	w := newFixture(t)
	w.slack.failures = 1
	w.clock.AdvanceTo(day.Add(time.Hour + 300*time.Nanosecond))
	w.store(newRequest())
	w.notifyPeople()
	w.takeSent()
	w.sweep(w.nextDue())
	require.Equal(t, []string{"ana slack asked"}, w.takeSent())
}

// A8: who was asked about other arguments is asked about the new ones at once, once, and whoever had approved those has
// to approve again.
func TestA8AnEditAsksAgain(t *testing.T) {
	w := told(t, func(a *approval.Approval) { a.Quorum = 2 }, remindEvery(4*time.Hour))
	require.Equal(t, []string{"ana email asked", "ana slack asked", "ben email asked"}, w.takeSent())
	w.n.NotifyChange(context.Background(), w.update(func(a *approval.Approval) {
		a.Decisions = append(a.Decisions, approval.Decision{By: "user:ana", Action: approval.Approve, At: w.clock.Now()})
	}))
	require.Empty(t, w.takeSent(), "an approval asks nobody again")
	edited := w.update(func(a *approval.Approval) {
		a.OriginalArgs, a.Args, a.Digest = a.Args, json.RawMessage(`{"iban":"DE02"}`), "d2"
		a.Decisions = append(a.Decisions, approval.Decision{By: "user:ben", Action: approval.Edit, Args: a.Args, At: w.clock.Now()})
	})
	for range 2 {
		w.n.NotifyChange(context.Background(), edited)
	}
	require.Equal(t, []string{"ana email asked", "ana slack asked"}, w.takeSent(), "her approval was of something else; the editor has approved his own")
	require.Equal(t, []string{"C1 pending"}, w.updated, "the message that shows the former arguments")
	w.sweep(4 * time.Hour)
	require.Equal(t, []string{"ana email reminder", "ana slack reminder"}, w.takeSent())
}

// A8: a message about an edit that does not get through is tried again until it does.
func TestA8AnEditIsToldOfByTheSweepToo(t *testing.T) {
	w := told(t, func(a *approval.Approval) { a.Quorum = 2 })
	w.takeSent()
	w.email.failures, w.slack.failures = 1, 100
	w.n.NotifyChange(context.Background(), w.update(func(a *approval.Approval) {
		a.Digest = "d2"
		a.Decisions = append(a.Decisions, approval.Decision{By: "user:ben", Action: approval.Edit, At: w.clock.Now()})
	}))
	require.Empty(t, w.takeSent())
	for at := time.Minute; at < 2*time.Hour; at += time.Minute {
		w.sweep(at)
	}
	require.Equal(t, []string{"ana email asked"}, w.takeSent())
	require.Greater(t, w.slack.failures, 100-8*maxTries)
	w.slack.failures = 0
	w.sweep(w.nextDue())
	require.Equal(t, []string{"ana slack asked"}, w.takeSent())
}

// C3: who begins to tell people while somebody else does, as a process that comes back parks its runs and looks for
// those that nobody was told of, sends nothing twice.
func TestC3WhoeverIsAtItIsLeftToIt(t *testing.T) {
	w := newFixture(t)
	a := w.store(newRequest())
	for _, c := range []*testChannel{w.email, w.slack} {
		c.beforeSend = func() error {
			c.beforeSend = nil
			_, err := w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true}, a.ID)
			return err
		}
	}
	w.ensure(a)
	require.Equal(t, []string{"ana email asked", "ana slack asked", "ben email asked"}, w.takeSent())
	before := w.writes()
	require.Empty(t, w.ensure(a), "it is told")
	require.Equal(t, before, w.writes())
	w.sweep(2 * time.Minute)
	require.Empty(t, w.takeSent())
}

// C3: nobody is told twice because messages take longer than a lease, of one request or of several.
func TestC3ALeaseLastsAsLongAsItsMessages(t *testing.T) {
	for requests, took := range map[int]time.Duration{1: 11 * time.Second, 3: 5 * time.Second, 2 * (maxSingle + 1): 9 * time.Second} {
		w, other, busy := newFixture(t), (*Notifier)(nil), false
		for i := range 8 {
			w.people.people = append(w.people.people, Person{ID: fmt.Sprint("user:p", i), Groups: []string{"group:finance"}, Slack: "U5"})
		}
		var ids []string
		for i := range requests {
			ids = append(ids, w.store(newRequest(func(a *approval.Approval) {
				if a.ID = fmt.Sprint("a", i); i > maxSingle {
					a.Approvers = []string{"user:cleo", "user:dan"}
				}
			})).ID)
		}
		other = w.notifier()
		w.slack.beforeSend = func() error {
			if w.clock.AdvanceTo(w.clock.Now().Add(took)); !busy {
				busy = true
				defer func() { busy = false }()
				_, err := other.ProcessDue(context.Background(), 100)
				return err
			}
			return nil
		}
		_, err := w.n.processRequests(context.Background(), acme, passOptions{createsNotice: true}, ids...)
		require.NoError(t, err)
		got := map[string]int{}
		for _, m := range w.sent {
			got[m.to+m.channel+m.shown]++
		}
		for to, n := range got {
			require.Equal(t, 1, n, "%s of %d requests", to, requests)
		}
	}
}

// C3: what a decision waits for leaves time to record what was sent.
func TestC3SendingLeavesTimeToRecord(t *testing.T) {
	w := told(t)
	w.n.NotifyChange(context.Background(), w.update(func(a *approval.Approval) { a.Digest = "d2" }))
	require.Equal(t, w.clock.Now().Add(updateTimeout), w.slack.until)
}

// knownRuns are runs by tenant; of any other, nothing is left.
type knownRuns map[string]run.AgentState

func (r knownRuns) Load(_ context.Context, tenant, id string) (store.Loaded, error) {
	if s, ok := r[tenant]; ok && id == s.Run {
		return store.Loaded{State: s}, nil
	}
	return store.Loaded{}, store.ErrNoRun
}

// People are shown what the model said in the very reply that made the call, by the definition of that run. While a run
// is being deleted, its requests are still masked by the schemas of their definition (B4).
func TestWhatIsShownBesideTheRequest(t *testing.T) {
	says := func(tenant string, blocks ...run.Block) (s run.AgentState) {
		s.Tenant, s.Run, s.Definition = tenant, "r1", "def "+tenant
		for _, b := range blocks {
			role := run.RoleAssistant
			if _, ok := b.(run.ToolResult); ok {
				role = run.RoleUser
			}
			s.Messages = s.Messages.Append(run.Message{Role: role, Block: b})
		}
		return s
	}
	v := Viewer{Runs: knownRuns{
		acme: says(acme, run.Text{Text: "before"}, run.ToolUse{ID: "c0"}, run.ToolResult{ID: "c0"}, run.Text{Text: "I pay"}, run.ToolUse{ID: "c1"},
			run.ToolUse{ID: "c2"}, run.Text{Text: "twice."}, run.ToolResult{ID: "c1"}, run.Text{Text: "after"}),
		"other": says("other", run.Text{Text: "other"}, run.ToolUse{ID: "c1"}),
	}, Definitions: func(_ context.Context, _, digest string) (*agent.Definition, error) {
		return &agent.Definition{Name: digest}, nil
	}}
	for _, c := range []struct{ tenant, run, call, undoes, text, def string }{
		{acme, "r1", "c0", "", "before", "def acme"}, {acme, "r1", "c1", "", "I pay\ntwice.", "def acme"}, {"other", "r1", "c1", "", "other", "def other"},
		{acme, "r1", "c2", "", "I pay\ntwice.", "def acme"}, {acme, "r1", "c2", "c0", "", "def acme"}, {acme, "r1", "c9", "", "", "def acme"},
		{acme, "r2", "c1", "", "", "def of the request"},
	} {
		a := approval.Approval{Tenant: c.tenant, Run: c.run, Calls: []string{c.call}, Definition: "def of the request"}
		if c.undoes != "" {
			a.Undoes = &approval.UndoneCall{Call: c.undoes}
		}
		got, err := v.View(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, DocumentView{Definition: &agent.Definition{Name: c.def}, ModelText: c.text}, got, "%v", c)
	}
}
