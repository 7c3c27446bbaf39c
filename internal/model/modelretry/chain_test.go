package modelretry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// house answers or fails by the id of the model that is asked, and notes who was.
type house struct {
	clock   clock.Clock
	replies map[string][]error // one a request, the last repeating; nil = an answer
	slow    map[string]time.Duration
	asked   []string
	numbers []int
	at      []time.Time
}

func (h *house) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	id := r.Model.ID
	h.asked, h.numbers, h.at = append(h.asked, id), append(h.numbers, r.Attempt), append(h.at, h.clock.Now())
	if err := h.clock.Sleep(ctx, h.slow[id]); err != nil {
		return agent.Reply{}, err
	}
	left := h.replies[id]
	if len(left) > 1 {
		h.replies[id] = left[1:]
	}
	if len(left) > 0 && left[0] != nil {
		return agent.Reply{}, left[0]
	}
	return agent.Reply{Model: id}, nil
}

// chain is a request to a, then b, then c.
func chain(attempts int) agent.Request {
	r := request(attempts)
	r.Model.ID, r.Model.StaticText, r.Model.Continuations = "a", "Sorry.", 3
	r.Model.Fallbacks = []agent.ModelSpec{{Provider: "openai", ID: "b", Retry: agent.Retry{Attempts: 1}}, {ID: "c"}}
	return r
}

func TestChain(t *testing.T) {
	server, auth, overflow := fail(agent.ModelServer), fail(agent.ModelAuth), fail(agent.ModelContextOverflow)
	for _, tt := range []struct {
		name    string
		replies map[string][]error
		asked   []string
		place   int
		err     error
	}{
		{"the first answers", nil, []string{"a"}, 0, nil},
		{"the first answers when asked again", map[string][]error{"a": {server, nil}}, []string{"a", "a"}, 0, nil},
		{"each as often as it may be", map[string][]error{"a": {server}, "b": {server}}, []string{"a", "a", "b", "c"}, 2, nil},
		{"every class moves on", map[string][]error{"a": {auth}, "b": {overflow}, "c": {server, nil}}, []string{"a", "b", "c", "c"}, 2, nil},
		{"nobody answers", map[string][]error{"a": {auth}, "b": {server}, "c": {overflow}}, []string{"a", "b", "c"}, 2, overflow},
		{"what is no model's failure moves nowhere", map[string][]error{"a": {errors.New("disk")}}, []string{"a"}, 0, errors.New("disk")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{clock: clock.System(), replies: tt.replies}
				reply, requests, err := New(h, h.clock, nil).Ask(context.Background(), chain(2))
				require.Equal(t, tt.err, err)
				require.Equal(t, tt.asked, h.asked)
				require.Equal(t, len(tt.asked), requests)
				for i, n := range h.numbers {
					require.Equal(t, i, n, "attempts are counted through the chain")
				}
				if err == nil {
					require.Equal(t, tt.place, reply.Place)
					require.Equal(t, tt.asked[len(tt.asked)-1], reply.Model)
				}
			})
		})
	}
}

// blind is a model that takes none of some media, and says so in an error of another class than others.
type blind struct {
	takesNone Media
	class     agent.ModelErrorClass
	sees      string // the model of a chain that takes all
	got       []string
}

func (b *blind) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	got := r.Model.ID + ":"
	for _, m := range r.Messages {
		switch block := m.Block.(type) {
		case run.Media:
			got += " " + block.MediaType
		case run.Text:
			got += " " + block.Text
		}
	}
	b.got = append(b.got, got)
	if r.Model.ID != b.sees && strings.Contains(got, map[Media]string{Pictures: " image/", Files: " application/"}[b.takesNone]) {
		return agent.Reply{}, (&Refusal{Status: 400, Media: b.takesNone}).Failure(b.class)
	}
	return agent.Reply{Model: r.Model.ID}, nil
}

// A medium that a tool gave ends no run whose model takes none. It is left out once no model of the chain takes it.
func TestMediaThatModelsTakeNoneOf(t *testing.T) {
	const all, less = "a: look image/png application/pdf", "c: look [p.png (image/png) is left out: the model takes no pictures] application/pdf"
	for _, tt := range []struct {
		name string
		b    blind
		r    agent.Request
		want []string
	}{
		{"a model that sees", blind{sees: "a"}, chain(2), []string{all}},
		{"another sees", blind{sees: "b", takesNone: Pictures, class: agent.ModelInvalid}, chain(2), []string{all, "b" + all[1:]}},
		{"none sees", blind{takesNone: Pictures, class: agent.ModelServer}, chain(2), []string{all, "b" + all[1:], "c" + all[1:], less}},
		{"none reads", blind{takesNone: Files, class: agent.ModelInvalid}, request(2),
			[]string{"m" + all[1:], "m: look image/png [f.pdf (application/pdf) is left out: the model takes no files]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.Messages = []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "look"}}, {Role: run.RoleUser, Block: run.Media{Name: "p.png", MediaType: "image/png"}},
				{Role: run.RoleUser, Block: run.Media{Name: "f.pdf", MediaType: "application/pdf"}}}
			_, requests, err := New(&tt.b, clock.System(), nil).Ask(context.Background(), tt.r)
			require.NoError(t, err)
			require.Equal(t, tt.want, tt.b.got)
			require.Equal(t, len(tt.want), requests)
			require.IsType(t, run.Media{}, tt.r.Messages[1].Block, "the caller's own stays")
		})
	}
	r := request(1)
	r.Messages = []run.Message{{Role: run.RoleUser, Block: run.Text{Text: "application/"}}}
	_, requests, err := New(&blind{takesNone: Files, class: agent.ModelInvalid}, clock.System(), nil).Ask(context.Background(), r)
	require.Error(t, err)
	require.Equal(t, 1, requests, "there is nothing to leave out")
}

func TestRefusedMedia(t *testing.T) {
	for message, want := range map[string]Media{
		"This model doesn't support the image field for user messages. Remove image and try again.": Pictures,
		"No endpoints found that support image input":                                               Pictures,
		"image input is not supported - hint: if this is unexpected":                                Pictures,
		"m is not a multimodal model":                                                               Pictures,
		"At most 0 image(s) may be provided in one prompt.":                                         Pictures,
		"this model does not support image input (ref: x)":                                          Pictures,
		"Unsupported content part type for text-only server: image_url":                             Pictures,
		"Invalid content type. image_url is only supported by certain models.":                      Pictures,
		"messages[1].content must be a string":                                                      Pictures,
		"Image input is not enabled for this model":                                                 Pictures,
		"This model doesn't support documents.":                                                     Files,
		"Invalid schema for function 'describe_image'":                                              "",
		"This model doesn't support tool use.":                                                      "",
		"prompt is too long":                                                                        "",
	} {
		require.Equal(t, want, RefusedMedia(message), message)
	}
}

// slowStream is a model whose stream hangs after a piece of text.
type slowStream struct{ clock clock.Clock }

func (s slowStream) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	_ = s.clock.Sleep(ctx, time.Hour)
	return agent.Reply{}, &agent.ModelError{Class: agent.ModelTimeout, Partial: &agent.Reply{Model: r.Model.ID, Text: "I ren", StopReason: policy.StopInterrupted}}
}

// A stream that its model's own time cut is kept; one that the caller's time cut is nobody's answer: the caller asks
// again.
func TestStreamsCutByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.System()
		r := chain(1)
		r.Model.CutStream, r.Model.Timeout = agent.CutStreamKeep, time.Second
		reply, _, err := New(slowStream{c}, c, nil).Ask(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, "I ren", reply.Text)
		require.Equal(t, "a", reply.Model)

		ctx, cancel := c.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.Model.Timeout = time.Minute
		_, _, err = New(slowStream{c}, c, nil).Ask(ctx, r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorAs(t, err, new(*agent.ModelError))
	})
}

// A model of the chain is asked as if it stood alone.
func TestChainAsksEachAlone(t *testing.T) {
	of := chain(4).Model
	of.MoveOn, of.CutStream, of.Repair = []agent.ModelErrorClass{agent.ModelServer}, agent.CutStreamKeep, agent.RepairOn
	of.MaxTokens, of.Timeout, of.Temperature = 100, time.Minute, new(0.5)
	of.Fallbacks[1].MaxTokens, of.Fallbacks[1].Temperature = 50, new(0.0)
	for i, m := range of.Chain() {
		require.Empty(t, m.Fallbacks)
		require.Empty(t, m.StaticText)
		require.Zero(t, m.Continuations)
		require.Nil(t, m.MoveOn)
		require.Equal(t, agent.CutStreamKeep, m.CutStream)
		require.Equal(t, agent.RepairOn, m.Repair)
		require.Equal(t, []int{4, 1, 4}[i], m.Retry.Attempts)
		require.Equal(t, 250*time.Millisecond, m.Retry.Backoff, "the first one's, where it has none")
		require.Equal(t, []int{100, 100, 50}[i], m.MaxTokens)
		require.Equal(t, []float64{0.5, 0.5, 0}[i], *m.Temperature)
		require.Equal(t, time.Minute, m.Timeout)
	}
	m := chain(1).Model
	require.Equal(t, "c", m.ChainModel(2).ID)
	require.Equal(t, "a", m.ChainModel(3).ID)
}

// Whoever asks to wait longer than the window is not asked again.
func TestRetryAfterBeyondTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{clock: clock.System(), replies: map[string][]error{"a": {throttled(11 * time.Second)}}}
		r := chain(3)
		r.Model.Retry.Window = 10 * time.Second
		began := h.clock.Now()
		_, _, err := New(h, h.clock, nil).Ask(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, h.asked)
		require.Equal(t, began, h.clock.Now())
	})
}

// A model that takes longer than it has is asked again, and then the next; a caller that has no time left is not.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{clock: clock.System(), slow: map[string]time.Duration{"a": time.Hour}}
		r := chain(2)
		r.Model.Timeout = 5 * time.Second
		reply, requests, err := New(h, h.clock, nil).Ask(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, "b", reply.Model)
		require.Equal(t, 3, requests)

		r.Model.Fallbacks = nil
		_, _, err = New(h, h.clock, nil).Ask(context.Background(), r)
		var failed *agent.ModelError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, agent.ModelTimeout, failed.Class)

		h.asked = nil
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, requests, err = New(h, h.clock, nil).Ask(short, chain(2))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorAs(t, err, &failed)
		require.Equal(t, 1, requests)
		require.Equal(t, []string{"a"}, h.asked)
	})
}

// Chance adds as much as the agent says, and nothing where it says nothing.
func TestJitterIsThePercentage(t *testing.T) {
	for percent, want := range map[int]time.Duration{0: 0, 20: 50 * time.Millisecond, 100: 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{clock: clock.System(), failures: []error{fail(agent.ModelServer), throttled(260 * time.Millisecond)}}
			r := request(3)
			r.Model.Retry.Jitter = percent
			_, _, err := New(f, f.clock, func(most time.Duration) time.Duration { return most }).Ask(context.Background(), r)
			require.NoError(t, err)
			require.Equal(t, []time.Duration{250*time.Millisecond + want, 500*time.Millisecond + 2*want}, f.waits(), percent)
		})
	}
}
