package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/stream"
)

// The paths that a chat of the AI SDK posts to, and takes a response up again by.
const (
	ChatPath       = "/v1/chat/{agent}"
	ChatStreamPath = ChatPath + "/{chat}/stream"
)

const (
	// maxChat is the size of a chat's body in bytes: it has the whole conversation, and a function takes 6 MB.
	maxChat = 5 << 20
	// maxParts is how many parts a message that is read may have.
	maxParts = 10_000
	// maxUnanswered is how many messages back a run is looked for whose response the client does not have.
	maxUnanswered = 10
	// chatKept is how long it is known at least what a conversation was answered last.
	chatKept = 24 * time.Hour
	// chatWindow is the longest duration of a response. Where a function's time is shorter, its deadline ends it.
	chatWindow = 5 * time.Minute
)

// Chat is the body of POST /v1/chat/{agent}, as the AI SDK's DefaultChatTransport sends it. The last message is read,
// or the response that messageId names, and of the newest response which run it shows, up to which entry. What else
// the messages say is not believed.
type Chat struct {
	ID        string            `json:"id"`       // of the conversation
	Messages  []json.RawMessage `json:"messages"` // UI messages
	Trigger   string            `json:"trigger"`
	MessageID string            `json:"messageId,omitempty"`
}

// uiMessage is a message of the AI SDK.
type uiMessage struct {
	ID       string          `json:"id"` // of an assistant's: its run, and perhaps a dot and the message that it answers
	Role     string          `json:"role"`
	Metadata json.RawMessage `json:"metadata"`
	Parts    json.RawMessage `json:"parts"`

	place string // in the body
}

// uiPart is a part of a message: text, a file, or a call.
type uiPart struct {
	Type      string `json:"type"`
	Text      string `json:"text"`
	MediaType string `json:"mediaType"`
	Filename  string `json:"filename"`
	URL       string `json:"url"`
	Call      string `json:"toolCallId"`
	State     string `json:"state"`
	Approval  struct {
		ID         string `json:"id"`
		Approved   *bool  `json:"approved"`
		Reason     string `json:"reason"`
		Descriptor struct {
			Digest string `json:"digest"`
		} `json:"descriptor"`
	} `json:"approval"`
}

// run is the run that an assistant's message shows; "" = none.
func (m uiMessage) run() string {
	id, _, _ := strings.Cut(m.ID, ".")
	if m.Role != "assistant" || !runPattern.MatchString(id) {
		return ""
	}
	return id
}

// nextOf is the first entry of the run that an assistant's message does not show, as its metadata say; if they do not,
// since its response broke off, the run's next one.
func (m uiMessage) nextOf(s *run.AgentState) int64 {
	var shown struct{ Next *int64 }
	if json.Unmarshal(m.Metadata, &shown) != nil || shown.Next == nil {
		return s.Entries
	}
	return max(0, min(s.Entries, *shown.Next))
}

// chatTurn is what a response shows of a run.
type chatTurn struct {
	run     string
	next    int64 // the first entry
	message string
	chat    *stream.Chat // nil = its message has nothing yet
}

func (s *apiServer) receiveChat(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	b, err := readBodyOf[Chat](w, r, maxChat, false)
	if err != nil {
		return 0, nil, err
	}
	if b.ID == "" {
		return 0, nil, invalidProblem("id: got nothing, want that of the conversation")
	}
	if err := checkText("id", b.ID, maxKey/2); err != nil {
		return 0, nil, err
	}
	if b.Trigger != "submit-message" {
		return 0, nil, invalidProblem("trigger: got %.64q, want submit-message: what a reply's tools did would be done "+
			"twice; send a message, or POST /v1/runs/{id}/fork", b.Trigger)
	}
	if len(b.Messages) == 0 {
		return 0, nil, invalidProblem("messages: got nothing, want those of the conversation")
	}
	messages := make([]uiMessage, len(b.Messages))
	for i, raw := range b.Messages {
		m := &messages[i]
		m.place = fmt.Sprintf("messages[%d]", i)
		if err := jsonx.DecodeKnown(raw, jsonx.JSONLimits{Bytes: maxChat}, m); err != nil {
			return 0, nil, invalidProblem("%s: %v", m.place, err)
		}
	}
	last := messages[len(messages)-1]
	for _, m := range messages {
		if m.ID == b.MessageID && m.run() != "" { // its answers are sent, whatever was said since
			last = m
		}
	}
	var turn chatTurn
	watching := r
	if s.Local { // where a client can hang up
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	switch {
	case last.Role == "user":
		turn, err = s.sendChat(r, c, b.ID, messages)
	case last.run() != "":
		turn, err = s.decideChat(r, c, last)
	default:
		err = invalidProblem("%s: want a user's message, or one of a response with answers to requests", last.place)
	}
	if err != nil {
		return 0, nil, err
	}
	err = s.Table.Write(r.Context(), store.Op{Kind: store.Put, Item: store.Item{Key: chatKey(r, c, b.ID),
		Attrs: map[string]store.Value{"run": store.Str(turn.run), "next": store.Num(turn.next),
			"message": store.Str(turn.message), "TTL": store.Num(s.Clock.Now().Add(chatKept).Unix())}}})
	if err != nil {
		return 0, nil, fmt.Errorf("note the response of chat %s: %w", b.ID, err)
	}
	return 0, nil, s.streamChat(w, watching, c, turn)
}

// chatAgent returns the agent that the path names.
func (s *apiServer) chatAgent(r *http.Request) (*agent.Definition, error) {
	def, err := s.findDefinition(Start{Agent: r.PathValue("agent")})
	if p, ok := errors.AsType[*Problem](err); ok && p.Type == UnknownAgent {
		err = problem(NoSuchPath, "%s", p.Detail)
	}
	return def, err
}

// chatKey is the key of what a conversation was answered last.
func chatKey(r *http.Request, c Caller, talk string) store.Key {
	return store.Key{PK: "T#" + c.Tenant + "#CHAT#" + r.PathValue("agent") + "#" + talk, SK: "A"}
}

// resumeChat repeats the response that a conversation was given last, if the run goes on, for a client that lost it.
func (s *apiServer) resumeChat(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	var it store.Item
	_, err := s.chatAgent(r)
	if talk := r.PathValue("chat"); err == nil && checkText("chat", talk, maxKey/2) == nil {
		it, _, err = s.Table.Get(r.Context(), chatKey(r, c, talk))
	}
	if id := it.Attrs["run"].String(); err == nil && id != "" && r.Method != http.MethodHead {
		var l store.Loaded
		if l, err = s.Journal.Load(r.Context(), c.Tenant, id); err == nil && !isResting(l) {
			return 0, nil, s.streamChat(w, r, c, chatTurn{id, it.Attrs["next"].Int(), it.Attrs["message"].String(), nil})
		} else if errors.Is(err, store.ErrNoRun) { // it was deleted
			err = nil
		}
	}
	return http.StatusNoContent, nil, err
}

// parts reads the parts of a message.
func (m uiMessage) parts() ([]uiPart, error) {
	var all []json.RawMessage
	if err := json.Unmarshal(m.Parts, &all); err != nil {
		return nil, invalidProblem("%s.parts: want a list", m.place)
	}
	if len(all) > maxParts {
		return nil, problem(TooLarge, "%s.parts: got %d, want at most %d", m.place, len(all), maxParts)
	}
	parts := make([]uiPart, len(all))
	for i, raw := range all {
		if err := jsonx.DecodeKnown(raw, jsonx.JSONLimits{Bytes: maxChat}, &parts[i]); err != nil {
			return nil, invalidProblem("%s.parts[%d]: %v", m.place, i, err)
		}
	}
	return parts, nil
}

// sendChat says the last message: to the run that the chat shows, or to one that continues it, or to a new one. Answers
// in the message before decide nothing: perhaps somebody else gave them.
func (s *apiServer) sendChat(r *http.Request, c Caller, talk string, messages []uiMessage) (turn chatTurn, err error) {
	last, name := messages[len(messages)-1], r.PathValue("agent")
	if last.ID == "" {
		return turn, invalidProblem("%s.id: got nothing, want the message's", last.place)
	}
	if err := checkText(last.place+".id", last.ID, maxKey/2-len("chat:128::")); err != nil {
		return turn, err
	}
	blocks, err := last.read()
	if err != nil {
		return turn, err
	}
	def, err := s.chatAgent(r)
	if err == nil {
		err = s.checkDelegates(def)
	}
	if err != nil {
		return turn, err
	}
	key := func(m uiMessage) string { return fmt.Sprintf("chat:%d:%s:%s", len(talk), talk, m.ID) }
	runKey := func(m uiMessage, blocks []run.UserBlock) string { // an edited message starts another run
		raw, _ := json.Marshal(blocks) // blocks always can be
		return key(m) + ":" + store.BlobDigest(raw)
	}
	for i, m := range slices.Backward(messages[:len(messages)-1]) {
		if m.Role == "user" && len(messages)-i <= maxUnanswered { // its response may be lost
			blocks, _ := m.read() // a message that cannot be read has started no run
			id := agent.RunID(c.Tenant, name, runKey(m, blocks))
			if _, err := s.Journal.Head(r.Context(), c.Tenant, id); err == nil {
				turn.run = id
				break
			} else if !errors.Is(err, store.ErrNoRun) {
				return turn, err
			}
		}
		if turn.run = m.run(); turn.run != "" {
			s, err := s.loadChat(r, c, m)
			if err != nil {
				return turn, err
			}
			turn.next = m.nextOf(s)
			break
		}
	}
	shown := turn.run
	if shown != "" {
		// A repeated message is known to a run that has ended since.
		err = s.Inputs.Send(r.Context(), c.Tenant, shown, key(last), c.Principal.ID, blocks)
		if errors.Is(err, store.ErrOtherInput) {
			err = problem(KeyReused, "%s: run %s has this message with another content, which cannot be changed; send "+
				"another message", last.place, shown)
		}
		if turn.message = shown + "." + last.ID; !errors.Is(err, runtime.ErrRunFinished) {
			return turn, err
		}
	}
	started, err := s.Starter.Start(r.Context(), runtime.Start{Tenant: c.Tenant, Agent: def, Key: runKey(last, blocks),
		Message: blocks, Continues: shown, By: []string{c.Principal.ID}})
	return chatTurn{run: started.Run, message: started.Run}, err
}

// read reads what a user says: texts, and files that are in the message.
func (m uiMessage) read() ([]run.UserBlock, error) {
	parts, err := m.parts()
	if err != nil {
		return nil, err
	}
	blocks := []map[string]string{}
	for i, p := range parts {
		switch p.Type {
		case "text":
			if p.Text != "" || len(parts) == 1 { // else beside files
				blocks = append(blocks, map[string]string{"type": "text", "text": p.Text})
			}
		case "file":
			_, data, ok := strings.Cut(p.URL, ";base64,")
			if !ok || !strings.HasPrefix(p.URL, "data:") {
				return nil, invalidProblem("%s.parts[%d].url: want data:…;base64,…", m.place, i)
			}
			block := map[string]string{"type": "media", "mediaType": p.MediaType, "data": data}
			if p.Filename != "" {
				block["name"] = p.Filename
			}
			blocks = append(blocks, block)
		default:
			return nil, invalidProblem("%s.parts[%d].type: got %.64q, want text or file", m.place, i, p.Type)
		}
	}
	raw, err := json.Marshal(blocks)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxJSONBody { // as of any other message
		return nil, problem(TooLarge, "%s: got %d bytes, want at most %d", m.place, len(raw), maxJSONBody)
	}
	return ReadMessage(m.place+".parts", raw)
}

// decideChat makes the decisions in an assistant's message: those of the client on requests about its calls. They may
// be repeated, and one that comes too late, or is about what has changed since, does nothing: the stream tells what
// became of the call, or asks again.
func (s *apiServer) decideChat(r *http.Request, c Caller, m uiMessage) (turn chatTurn, err error) {
	state, err := s.loadChat(r, c, m)
	if err != nil {
		return turn, err
	}
	parts, err := m.parts()
	if err != nil {
		return turn, err
	}
	var calls, step, requests, answered []string
	for i, p := range parts {
		switch {
		case p.Type == "step-start":
			step = nil
			continue
		case p.Call == "":
			continue
		}
		calls, step = append(calls, p.Call), append(step, p.Call)
		requests = append(requests, stream.RequestOf(p.Approval.ID))
		if p.State != "approval-responded" {
			continue
		}
		if answered = append(answered, p.Call); len(answered) > maxInputs {
			return turn, problem(TooLarge, "%s.parts: got more than %d answers to requests", m.place, maxInputs)
		}
		place := fmt.Sprintf("%s.parts[%d].approval", m.place, i)
		if err := s.decideChatRequest(r.Context(), c, state.Run, place, p); err != nil {
			return turn, err
		}
	}
	if len(answered) == 0 {
		return turn, invalidProblem("%s: want a user's message, or an answer to a request", m.place)
	}
	return chatTurn{state.Run, m.nextOf(state), m.ID, stream.NewChat(calls, step, requests, answered)}, nil
}

// loadChat reads the run that an assistant's message shows.
func (s *apiServer) loadChat(r *http.Request, c Caller, m uiMessage) (*run.AgentState, error) {
	l, err := s.Journal.Load(r.Context(), c.Tenant, m.run())
	if err != nil {
		return nil, fmt.Errorf("%s.id: %w", m.place, err)
	}
	if l.State.Agent != r.PathValue("agent") {
		return nil, invalidProblem("%s.id: run %s is of agent %s", m.place, l.State.Run, l.State.Agent)
	}
	return &l.State, nil
}

// decideChatRequest makes the decision in a part. The client sends back the digest of what it was shown.
func (s *apiServer) decideChatRequest(ctx context.Context, c Caller, runID, place string, p uiPart) error {
	id := stream.RequestOf(p.Approval.ID)
	none := problem(ApprovalNotFound, "%s.id: run %s has no request %.64q", place, runID, id)
	switch {
	case !approvalPattern.MatchString(id):
		return none
	case p.Approval.Approved == nil: // which is no denial
		return invalidProblem("%s.approved: want true or false", place)
	}
	a, err := approval.Get(ctx, s.Table, c.Tenant, id)
	switch {
	case errors.Is(err, approval.ErrNotFound), err == nil && a.Run != runID:
		return none
	case err != nil:
		return err
	}
	in := approval.DecisionInput{Tenant: c.Tenant, ID: a.ID, Action: approval.Deny, Note: p.Approval.Reason,
		Digest: p.Approval.Descriptor.Digest, By: c.Principal, Via: s.Via}
	if *p.Approval.Approved {
		in.Action = approval.Approve
	}
	if _, err = s.Desk.Decide(ctx, in); err == nil {
		return nil
	}
	late := []ProblemType{AlreadyDecided, ApprovalExpired, RunFinished, PolicyChanged, RequestChanged}
	if slices.Contains(late, problemOf(err).Type) {
		return nil
	}
	return fmt.Errorf("%s: %w", place, err)
}

// chatRequest is what a chat is told of a request, beside the call. The client sends the digest back.
type chatRequest struct {
	Digest    string     `json:"digest,omitempty"`
	Sentence  string     `json:"sentence,omitempty"`
	Approvers []string   `json:"approvers"`
	Above     [][]string `json:"above,omitempty"`
	Quorum    int        `json:"quorum"`
	Until     time.Time  `json:"until"`
}

// describeRequest describes a request to a chat's client.
func (s *apiServer) describeRequest(ctx context.Context, c Caller, id string) (out stream.ChatRequest, err error) {
	if id == "" {
		return out, nil
	}
	a, err := approval.Get(ctx, s.Table, c.Tenant, id)
	if err == nil {
		err = s.addSentence(ctx, &a)
	}
	now := s.Clock.Now()
	if a.OriginalArgs != nil {
		out.Args = a.Args
	}
	out.Mine = a.IsOpen(now) && a.Kind == approval.KindCall && a.Awaits(c.Principal, now) &&
		a.ChannelsOf("").Count(s.Via, "") && isExactInBrowsers(a.Args)
	approvers, above := a.ApproversAt(now)
	out.Shown = chatRequest{a.Digest, a.Sentence, approvers, above, a.Quorum, a.ExpiresAt}
	return out, err
}

// isExactInBrowsers reports whether a browser shows each number as it is: it reads them as float64.
func isExactInBrowsers(args json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(args))
	for d.UseNumber(); ; {
		token, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if n, is := token.(json.Number); is {
			f, _ := n.Float64() // one that is too large is none that can be compared
			if c, err := jsonx.CompareNumbers(n.String(), strconv.FormatFloat(f, 'g', -1, 64)); err != nil || c != 0 {
				return false
			}
		}
	}
}

// streamChat responds with what the run does, until it has ended or waits for people, and has taken in what the client
// has said.
func (s *apiServer) streamChat(w http.ResponseWriter, r *http.Request, c Caller, turn chatTurn) error {
	ctx, cancel := s.Clock.WithTimeout(r.Context(), chatWindow)
	defer cancel()
	watch := s.Feed.Watch(c.Tenant, turn.run)
	defer watch.Stop()
	now, err := s.Journal.Load(ctx, c.Tenant, turn.run)
	if err != nil {
		return err
	}
	v, err := s.newJournalReader(ctx, &now.State, eventPosition{turn.next - 1, afterEntry}, stream.Aisdk)
	if err != nil {
		return err
	}
	v.chat = cmp.Or(turn.chat, stream.NewChat(nil, nil, nil, nil))
	v.chat.Ask = func(id string) (stream.ChatRequest, error) { return s.describeRequest(ctx, c, id) }
	t := s.beginStream(w, v)
	t.drained = now.State.Drained + int64(len(now.Inbox))
	rests := isResting(now) && turn.next >= now.State.Entries
	if rests {
		v.next, v.state = now.State.Entries, now.State
	}
	if err = t.writeAll(v.chat.Start(turn.message, turn.run)); err == nil && !rests {
		err = s.followChat(ctx, t, watch)
	}
	if err != nil {
		s.logBroken(turn.run, err)
	}
	if errors.Is(r.Context().Err(), context.Canceled) { // the client has gone; the response has begun
		return nil
	}
	end, cancelEnd := s.Clock.WithTimeout(context.WithoutCancel(r.Context()), time.Second)
	defer cancelEnd()
	v.chat.Ask = func(id string) (stream.ChatRequest, error) { return s.describeRequest(end, c, id) }
	last, err := v.chat.Finish(v.next, &v.state)
	if err != nil {
		s.logBroken(turn.run, err)
	}
	_ = errors.Join(t.writeAll(last), t.writeLast()) // the client has gone if it fails
	return nil
}

// followChat follows a run as a stream of its events does. Every ten seconds it looks whether a run below it waits for
// people: that is the end, too. Else it sends a comment, so that no proxy takes the response for dead.
func (s *apiServer) followChat(ctx context.Context, t *eventStream, watch Watch) error {
	for {
		some, cancel := s.Clock.WithTimeout(ctx, 10*time.Second)
		err := t.follow(some, watch)
		over := some.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !over {
			return err
		}
		call, below, err := s.peopleBelow(ctx, &t.state)
		if err != nil {
			return err
		}
		if below != "" {
			return t.writeAll(t.chat.EndBelow(call, below))
		}
		if !t.isHeld {
			_, _ = io.WriteString(t.out, ":\n\n") // follow flushes it, and says if the client has gone
		}
	}
}

// peopleBelow returns a run below a run that waits for people, and the call that it is below; "" = none does.
func (s *apiServer) peopleBelow(ctx context.Context, of *run.AgentState) (call, below string, err error) {
	for _, c := range of.Waits() {
		if c.Child == "" || of.Status != run.RunWaiting { // it works beside the call
			continue
		}
		l, err := s.Journal.Load(ctx, of.Tenant, c.Child)
		if err != nil || l.State.Status == run.RunWaiting && waitsForPeople(&l.State) {
			return c.ID, c.Child, err
		}
		if _, below, err := s.peopleBelow(ctx, &l.State); err != nil || below != "" {
			return c.ID, below, err
		}
	}
	return "", "", nil
}

// isResting reports whether nothing is under way: a run is done or waits for people, and has taken everything in.
func isResting(l store.Loaded) bool {
	return len(l.Inbox) == 0 &&
		(l.State.Status == run.RunDone || l.State.Status == run.RunWaiting && waitsForPeople(&l.State))
}

// waitsForPeople reports whether a parked run waits for somebody else than services and the runs below it.
func waitsForPeople(s *run.AgentState) bool {
	waits := s.Waits()
	return len(waits) == 0 || slices.ContainsFunc(waits, func(c run.Call) bool { return c.Wait.For != run.ForAnswer })
}
