package standins

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Slack is one workspace with one app. Serve it on the loopback interface. Safe for concurrent use once it is made.
type Slack struct {
	Token string // the bot's
	Team  string // the workspace's id
	// Members are who can be written to.
	Members []string
	// Refuse is asked before the n-th request of the Web API, from 1: an answer other than nil is given in place of
	// Slack's. Nil = none is.
	Refuse func(n int) *SlackAnswer

	requests atomic.Int64
	mu       sync.Mutex
	messages []SlackMessage // in the order in which they were posted
	answers  []json.RawMessage
}

// SlackAnswer is an answer in place of Slack's own.
type SlackAnswer struct {
	Status     int
	RetryAfter string
	Body       string
}

// SlackMessage is a message as it stands.
type SlackMessage struct {
	Ref     string // conversation/ts
	To      string // the member
	Text    string
	Blocks  []SlackBlock
	Raw     json.RawMessage
	Updates int
}

// Messages are all messages, in the order in which they were posted.
func (s *Slack) Messages() []SlackMessage { return snapshot(&s.mu, &s.messages) }

// Requests is how often the Web API was asked.
func (s *Slack) Requests() int { return int(s.requests.Load()) }

// Answers are what clicks were answered, in order.
func (s *Slack) Answers() []json.RawMessage { return snapshot(&s.mu, &s.answers) }

// snapshot returns a copy of a list that mu guards.
func snapshot[T any](mu *sync.Mutex, list *[]T) []T {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(*list)
}

// ServeHTTP serves the Web API below /api/ and answers to clicks below /actions/.
func (s *Slack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // the client is gone
	}
	method, isAPI := strings.CutPrefix(r.URL.Path, "/api/")
	switch {
	case strings.HasPrefix(r.URL.Path, "/actions/"):
		s.hear(w, r, body)
	case !isAPI:
		http.NotFound(w, r)
	case s.refused(w):
	default:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(s.call(r, method, body)) // the client is gone if this fails
	}
}

// refused answers in place of Slack where it is to.
func (s *Slack) refused(w http.ResponseWriter) bool {
	n := int(s.requests.Add(1))
	if s.Refuse == nil {
		return false
	}
	a := s.Refuse(n)
	if a == nil {
		return false
	}
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // the client is gone if this fails
	return true
}

func no(code string, problems ...string) map[string]any {
	out := map[string]any{"ok": false, "error": code}
	if len(problems) > 0 {
		out["errors"] = problems
	}
	return out
}

func (s *Slack) call(r *http.Request, method string, body []byte) map[string]any {
	t, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case r.Method != http.MethodPost:
		return no("invalid_post_type")
	case method != "chat.postMessage" && method != "chat.update":
		return no("unknown_method")
	case err != nil || t != "application/json" || params["charset"] != "" && params["charset"] != "utf-8":
		return no("invalid_post_type")
	case !bearer || token == "":
		return no("not_authed")
	case token != s.Token:
		return no("invalid_auth")
	}
	m, problems := parse(body)
	switch {
	case m == nil:
		return no("invalid_json")
	case slices.Contains(problems, tooLong):
		return no("msg_blocks_too_long")
	case len(problems) > 0:
		return no("invalid_blocks", problems...)
	case m.Text == "" && len(m.Blocks) == 0:
		return no("no_text")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if method == "chat.update" { // Slack takes the id of a conversation there, and no member's
		if !slices.ContainsFunc(s.messages, func(of SlackMessage) bool { return strings.HasPrefix(of.Ref, m.Channel+"/") }) {
			return no("channel_not_found")
		}
		old := s.message(m.Channel + "/" + m.TS)
		if old == nil {
			return no("message_not_found")
		}
		old.Text, old.Blocks, old.Raw, old.Updates = m.Text, m.Blocks, m.raw, old.Updates+1
		return map[string]any{"ok": true, "channel": m.Channel, "ts": m.TS, "text": m.Text}
	}
	if !slices.Contains(s.Members, m.Channel) {
		return no("channel_not_found")
	}
	conversation, ts := "D"+m.Channel[1:], fmt.Sprintf("1700000000.%06d", len(s.messages)+1)
	s.messages = append(s.messages,
		SlackMessage{Ref: conversation + "/" + ts, To: m.Channel, Text: m.Text, Blocks: m.Blocks, Raw: m.raw})
	return map[string]any{"ok": true, "channel": conversation, "ts": ts}
}

// message returns the message of a reference; nil = there is none.
func (s *Slack) message(ref string) *SlackMessage {
	if i := slices.IndexFunc(s.messages, func(m SlackMessage) bool { return m.Ref == ref }); i >= 0 {
		return &s.messages[i]
	}
	return nil
}

// hear takes an answer to a click.
func (s *Slack) hear(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Method != http.MethodPost || !json.Valid(body) || r.Header.Get("Authorization") != "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, body)
	_, _ = io.WriteString(w, "ok") // the client is gone if this fails
}
