package agent

import (
	"strconv"
	"strings"
)

// The keys of wordings about replies.
const (
	wordGoOn          = "goOn"
	wordNoReply       = "noReply"
	wordTruncated     = "truncated"
	wordFiltered      = "filtered"
	wordOutputRefused = "outputRefused"
	wordDropped       = "dropped"
)

// wordingsOfReplies are what is said of what a model said.
var wordingsOfReplies = []Wording{
	{Key: wordGoOn, About: "to a model whose reply was cut by the limit of its output",
		Text: "Your answer was cut off because it reached the limit of its length. Go on exactly where it stopped. Repeat nothing."},
	{Key: wordNoReply, About: "for the model's turn where it said nothing and had to", Text: "[no reply]"},
	{Key: wordTruncated, About: "behind a text that its provider cut at the limit of its length",
		Text: "[The reply was cut off here: it reached the limit of its length.]"},
	{Key: wordFiltered, About: "behind a text that its provider's content filter cut", Text: "[The reply was blocked here by the provider's content filter.]"},
	{Key: wordOutputRefused, About: "why an output was not accepted, within the error that the model reads", Fields: []string{"Problem"},
		Text: "Your answer was not accepted: {{.Problem}}\nAnswer again, with one JSON value and nothing else: no text around it and no code fence."},
	{Key: wordDropped, About: "which calls of a turn the batch mode left out", Fields: []string{"Tools"},
		Text: "These calls of your last turn were left out and had no effect, because only those that go first were carried out: {{.Tools}}. " +
			"Make them again if they are still needed."},
}

// The keys of wordings about calls.
const (
	wordDeniedByRule     = "deniedByRule"
	wordDeniedAbove      = "deniedAbove"
	wordToolDenied       = "toolDenied"
	wordToolRefused      = "toolRefused"
	wordAwaiting         = "awaitingPermission"
	wordInvalidArguments = "invalidArguments"
	wordBlockedCall      = "blocked"
	wordOutOfScope       = "notOffered"
	wordVoided           = "voided"
	wordGrantExpired     = "grantExpired"
	wordSkipped          = "skipped"
)

// wordingsOfCalls are the results of calls that were not carried out.
var wordingsOfCalls = []Wording{
	{Key: wordDeniedByRule, About: "a rule denies the call; the rule's note follows", Fields: []string{"Tool"},
		Text: "The policy of this agent denies calling {{.Tool}} like this. Do not repeat the call."},
	{Key: wordDeniedAbove, About: "a rule of an agent that delegated the run denies the call; the rule's note follows", Fields: []string{"Tool"},
		Text: "The policy of the agent that delegated this task denies calling {{.Tool}} like this. Do not repeat the call; say in your answer what you could not do."},
	{Key: wordToolDenied, About: "a person denied the tool for the run; their note follows", Fields: []string{"Tool", "By"},
		Text: "Denied: {{.By}} has denied calling {{.Tool}} in this run. The call was not carried out. Do not call it again."},
	{Key: wordToolRefused, About: "the permission backend denies the tool", Fields: []string{"Tool"},
		Text: "Denied: calling {{.Tool}} is not permitted. The call was not carried out. Do not call it again."},
	{Key: wordAwaiting, About: "the tool's permission is being requested (seed 000, permission authorization gate)", Fields: []string{"Tool"},
		Text: "Blocked: {{.Tool}} may not be called without a permission, which is being requested. The call was not carried out. " +
			"You will be told what came of the request; if the permission is granted, call {{.Tool}} again.",
		Presets: map[Preset]string{
			PresetArvo: "[Critical] Tool blocked - permission required. Request lodged, please retry after approval.",
		}},
	{Key: wordInvalidArguments, About: "the arguments do not fit the tool's schema", Fields: []string{"Tool", "Problem"},
		Text: "The arguments do not fit the schema of {{.Tool}}, so it was not called. Refer to the tool's definition:\n{{.Problem}}"},
	{Key: wordBlockedCall, About: "a plugin blocks the call", Fields: []string{"Tool", "Reason"}, Text: "{{.Tool}} was not called, because it is blocked: {{.Reason}}"},
	{Key: wordOutOfScope, About: "the tool was left out of the turn's request", Fields: []string{"Tool"},
		Text: "{{.Tool}} was not offered to you for this turn, so it was not called."},
	{Key: wordVoided, About: "what would run is not what was approved", Fields: []string{"Tool"},
		Text: "The approval of this call of {{.Tool}} does not fit what would run now, so it was not carried out."},
	{Key: wordGrantExpired, About: "the approval is too old", Fields: []string{"Tool"},
		Text: "The approval of this call of {{.Tool}} expired before it could run, so it was not carried out."},
	{Key: wordSkipped, About: "a call before it in a sequential round is paused", Fields: []string{"Tool"},
		Text: "Skipped: a call before this one of {{.Tool}} is paused, and calls run in order here. It was not carried out. Call it again if it is still wanted."},
}

// The keys of wordings within requests.
const (
	wordMediaSeen = "mediaSeen"
	wordExhausted = "exhausted"
	wordJSONOnly  = "jsonOnly"
)

// wordingsOfRequests stand in requests alone.
var wordingsOfRequests = []Wording{
	{Key: wordMediaSeen, About: "for media that an earlier request has carried (seed 000)", Fields: []string{"Media"},
		Text: "[the media {{.Media}} was already looked at and is not shown again]"},
	{Key: wordExhausted, About: "the quota is used up", Fields: []string{"Max"},
		Text: "You have used up the {{.Max}} turns you had for this. Give your final answer now."},
	{Key: wordJSONOnly, About: "the answer is to be JSON, and the provider cannot be asked for it",
		Text: "Give your final answer as one JSON value and nothing else: no text around it and no code fence."},
}

// textMediaSeen stands in a request for media that an earlier one has carried.
func textMediaSeen(d *Definition, m Media) string {
	return d.word(wordMediaSeen, map[string]any{"Media": strings.TrimSpace(m.Name + " " + m.MediaType + "@base64")})
}

// notices are d's words for what a request's flags say.
func (d *Definition) notices(r Request) (n Notices) {
	if r.Exhausted {
		n.Exhausted = d.word(wordExhausted, map[string]any{"Max": strconv.Itoa(r.Interactions.Max)})
	}
	if r.Output.JSON && len(r.Output.Schema) == 0 {
		n.JSONOnly = d.word(wordJSONOnly, nil)
	}
	return n
}
