package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web/stream"
)

// ChatPath is the path that a chat of the AI SDK posts to.
const ChatPath = "/v1/chat/{agent}"

const (
	// maxChat is the size of a chat's body in bytes: it has the whole conversation, and a function takes 6 MB.
	maxChat = 5 << 20
	// chatWindow is the longest duration of a response. Where a function's time is shorter, its deadline ends it.
	chatWindow = 5 * time.Minute
)

// Chat is the body of POST /v1/chat/{agent}, as the AI SDK's DefaultChatTransport sends it. Of the messages, the last
// one is read, and of the newest one of the assistant which run it shows, and up to where. What else they say is not
// believed.
type Chat struct {
	ID        string            `json:"id"`       // of the conversation
	Messages  []json.RawMessage `json:"messages"` // UI messages
	Trigger   string            `json:"trigger"`
	MessageID string            `json:"messageId,omitempty"`
}

// uiMessage is a message of the AI SDK.
type uiMessage struct {
	ID       string          `json:"id"` // of an assistant's: its run, and perhaps a dot and the entry that it begins with
	Role     string          `json:"role"`
	Metadata json.RawMessage `json:"metadata"`
	Parts    []uiPart        `json:"parts"`
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
		Approved   bool   `json:"approved"`
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
	chat    *stream.Chat
}

func (s *server) receiveChat(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
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
		return 0, nil, invalidProblem("trigger: got %.64q, want submit-message; POST /v1/runs/{id}/fork repeats a reply",
			b.Trigger)
	}
	if len(b.Messages) == 0 {
		return 0, nil, invalidProblem("messages: got nothing, want those of the conversation")
	}
	messages := make([]uiMessage, len(b.Messages))
	for i, raw := range b.Messages {
		if err := jsonx.DecodeKnown(raw, jsonx.JSONLimits{Bytes: maxChat}, &messages[i]); err != nil {
			return 0, nil, invalidProblem("messages[%d]: %v", i, err)
		}
	}
	last, place := messages[len(messages)-1], fmt.Sprintf("messages[%d]", len(messages)-1)
	var turn chatTurn
	switch {
	case last.Role == "user":
		turn, err = s.sendChat(r, c, b.ID, place, messages)
	case last.run() != "":
		turn, err = s.decideChat(r, c, place, last)
	default:
		err = invalidProblem("%s: want a user's message, or one of a response with answers to requests", place)
	}
	if err != nil {
		return 0, nil, err
	}
	return 0, nil, s.streamChat(w, r, c, turn)
}

// sendChat says the last message: to the run that the chat shows, or to one that continues it, or to a new one.
func (s *server) sendChat(
	r *http.Request, c Caller, talk, place string, messages []uiMessage,
) (turn chatTurn, err error) {
	last := messages[len(messages)-1]
	if last.ID == "" {
		return turn, invalidProblem("%s.id: got nothing, want the message's", place)
	}
	if err := checkText(place+".id", last.ID, maxKey/2-len("chat:128::")); err != nil {
		return turn, err
	}
	blocks, err := last.read(place)
	if err != nil {
		return turn, err
	}
	def, err := s.findDefinition(Start{Agent: r.PathValue("agent")})
	if p, ok := errors.AsType[*Problem](err); ok && p.Type == UnknownAgent { // the path names it
		err = problem(NoSuchPath, "%s", p.Detail)
	}
	if err == nil {
		err = s.checkDelegates(def)
	}
	if err != nil {
		return turn, err
	}
	key, shown := fmt.Sprintf("chat:%d:%s:%s", len(talk), talk, last.ID), ""
	chat := stream.NewChat(nil, map[string]string{})
	for i, m := range slices.Backward(messages) {
		if shown = m.run(); shown == "" {
			continue
		}
		l, err := s.Journal.Load(r.Context(), c.Tenant, shown)
		if err != nil {
			return turn, fmt.Errorf("messages[%d].id: %w", i, err)
		}
		if l.State.Agent != def.Name {
			return turn, invalidProblem("messages[%d].id: run %s is of agent %s", i, shown, l.State.Agent)
		}
		// A repeated message is known to a run that has ended since.
		err = s.Inputs.Send(r.Context(), c.Tenant, shown, key, c.Principal.ID, blocks)
		if err == nil {
			next := m.nextOf(&l.State)
			return chatTurn{shown, next, shown + "." + strconv.FormatInt(next, 10), chat}, nil
		}
		if !errors.Is(err, runtime.ErrRunFinished) {
			return turn, err
		}
		break
	}
	started, err := s.Starter.Start(r.Context(), runtime.Start{Tenant: c.Tenant, Agent: def, Key: key, Message: blocks,
		Continues: shown, By: []string{c.Principal.ID}})
	return chatTurn{started.Run, 0, started.Run, chat}, err
}

// read reads what a user says: texts, and files that are in the message.
func (m uiMessage) read(place string) ([]run.UserBlock, error) {
	blocks := []map[string]string{}
	for i, p := range m.Parts {
		switch p.Type {
		case "text":
			blocks = append(blocks, map[string]string{"type": "text", "text": p.Text})
		case "file":
			_, data, ok := strings.Cut(p.URL, ";base64,")
			if !ok || !strings.HasPrefix(p.URL, "data:") {
				return nil, invalidProblem("%s.parts[%d].url: want data:…;base64,…", place, i)
			}
			block := map[string]string{"type": "media", "mediaType": p.MediaType, "data": data}
			if p.Filename != "" {
				block["name"] = p.Filename
			}
			blocks = append(blocks, block)
		default:
			return nil, invalidProblem("%s.parts[%d].type: got %.64q, want text or file", place, i, p.Type)
		}
	}
	raw, err := json.Marshal(blocks)
	if err != nil {
		return nil, err
	}
	return ReadMessage(place+".parts", raw)
}

// decideChat makes the decisions in an assistant's message: those of the client on requests about its calls. They may
// be repeated.
func (s *server) decideChat(r *http.Request, c Caller, place string, m uiMessage) (turn chatTurn, err error) {
	l, err := s.Journal.Load(r.Context(), c.Tenant, m.run())
	if err != nil {
		return turn, fmt.Errorf("%s.id: %w", place, err)
	}
	if of := r.PathValue("agent"); l.State.Agent != of {
		return turn, invalidProblem("%s.id: run %s is of agent %s", place, l.State.Run, l.State.Agent)
	}
	var calls []string
	asked := map[string]string{}
	answers := 0
	for i, p := range m.Parts {
		if p.Call == "" {
			continue
		}
		calls = append(calls, p.Call)
		id := stream.RequestOf(p.Approval.ID)
		asked[id] = ""
		if p.State == "approval-requested" {
			asked[id] = p.Approval.ID
		}
		if p.State != "approval-responded" {
			continue
		}
		answers++
		err := s.decideChatRequest(r.Context(), c, l.State.Run, fmt.Sprintf("%s.parts[%d].approval", place, i), p)
		if err != nil {
			return turn, err
		}
	}
	if answers == 0 {
		return turn, invalidProblem("%s: want a user's message, or an answer to a request", place)
	}
	return chatTurn{l.State.Run, m.nextOf(&l.State), m.ID, stream.NewChat(calls, asked)}, nil
}

// decideChatRequest makes the decision in a part. The client sends back the digest of what it was shown.
func (s *server) decideChatRequest(ctx context.Context, c Caller, runID, place string, p uiPart) error {
	id := stream.RequestOf(p.Approval.ID)
	none := problem(ApprovalNotFound, "%s.id: run %s has no request %.64q", place, runID, id)
	if !approvalPattern.MatchString(id) {
		return none
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
	if p.Approval.Approved {
		in.Action = approval.Approve
	}
	if _, err = s.Desk.Decide(ctx, in); err != nil {
		err = fmt.Errorf("%s: %w", place, err)
	}
	return err
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

// describeRequest describes a request to a chat's client, and says whether the client may decide it.
func (s *server) describeRequest(ctx context.Context, c Caller, id string) (any, bool, error) {
	if id == "" {
		return nil, false, nil
	}
	a, err := approval.Get(ctx, s.Table, c.Tenant, id)
	if err == nil {
		err = s.addSentence(ctx, &a)
	}
	mine := a.IsOpen(s.Clock.Now()) && a.Kind == approval.KindCall && a.Awaits(c.Principal, s.Clock.Now())
	return chatRequest{a.Digest, a.Sentence, a.Approvers, a.Above, a.Quorum, a.ExpiresAt}, mine, err
}

// streamChat responds with what the run does, until it has ended or waits for people, and has taken in what the client
// has said.
func (s *server) streamChat(w http.ResponseWriter, r *http.Request, c Caller, turn chatTurn) error {
	ctx, cancel := s.Clock.WithTimeout(r.Context(), chatWindow)
	defer cancel()
	watch := s.Feed.Watch(c.Tenant, turn.run)
	defer watch.Stop()
	now, err := s.Journal.Load(ctx, c.Tenant, turn.run)
	if err != nil {
		return err
	}
	v, err := s.newJournalReader(ctx, &now.State, position{turn.next - 1, afterEntry}, stream.Aisdk)
	if err != nil {
		return err
	}
	v.chat = turn.chat
	v.chat.Ask = func(id string) (any, bool, error) { return s.describeRequest(ctx, c, id) }
	t := s.beginStream(w, v)
	t.drained = now.State.Drained + int64(len(now.Inbox))
	rests := now.State.Status != run.RunRunning && len(now.Inbox) == 0 && turn.next >= now.State.Entries
	if err = t.writeAll(v.chat.Start(turn.message, turn.run)); err == nil && !rests {
		err = t.follow(ctx, watch)
	}
	if err != nil {
		s.logBroken(turn.run, err)
	}
	if !errors.Is(r.Context().Err(), context.Canceled) { // else the client has gone; the response has begun
		_ = errors.Join(t.writeAll(v.chat.Finish(v.next)), t.writeLast())
	}
	return nil
}
