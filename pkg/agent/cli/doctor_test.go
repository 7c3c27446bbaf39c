package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/standins"
)

// patient is AWS and Slack, with a stack in it that is well, or has every illness that doctor knows.
type patient struct {
	t     *testing.T
	sick  bool
	asked []string
}

func (a *patient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	what := r.Method + " " + r.URL.Path
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, what, _ = strings.Cut(target, ".")
	} else if _, action, query := strings.Cut(string(body), "Action="); query {
		what, _, _ = strings.Cut(action, "&")
	}
	a.asked = append(a.asked, what)
	if strings.HasSuffix(what, "/invocations") && r.URL.RawQuery != "Qualifier=live" { // by which every function is called
		a.t.Errorf("%s?%s", what, r.URL.RawQuery)
	}
	if a.sick {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	}
	status, answer := a.answer(what, string(body))
	if strings.HasPrefix(answer, "<") {
		w.Header().Set("Content-Type", "text/xml")
	} else {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	}
	if what == "POST /api/auth.test" {
		w.Header().Set("X-OAuth-Scopes", a.either("chat:write,users:read", "users:read"))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

func (a *patient) either(well, sick string) string {
	if a.sick {
		return sick
	}
	return well
}

// answer is what a service says to a request.
func (a *patient) answer(what, body string) (status int, text string) {
	const topic = "arn:aws:sns:eu-central-1:123456789012:shop-AlarmTopic-A1"
	path, _, _ := strings.Cut(strings.TrimPrefix(what, "GET "), "?")
	switch {
	case path == "/2015-03-31/functions" || path == "/2015-03-31/functions/":
		return http.StatusOK, a.functions()
	case path == "/2016-08-19/account-settings" || path == "/2016-08-19/account-settings/":
		return http.StatusOK, `{"AccountLimit": {"ConcurrentExecutions": ` + a.either("1000", "10") + `}}`
	case strings.HasSuffix(what, "/invocations"):
		require.JSONEq(a.t, lambdafn.VersionRequest, body)
		b := lambdafn.ReadBuild()
		if a.sick {
			b.Revision = "0123456789abcdef"
		}
		text, err := json.Marshal(b)
		require.NoError(a.t, err)
		return http.StatusOK, string(text)
	case what == "DescribeTable":
		return http.StatusOK, `{"Table": {"DeletionProtectionEnabled": ` + a.either("true", "false") + `}}`
	case what == "DescribeTimeToLive":
		return http.StatusOK, `{"TimeToLiveDescription": {"TimeToLiveStatus": "` + a.either("ENABLED", "DISABLED") + `"}}`
	case what == "DescribeContinuousBackups":
		return http.StatusOK, `{"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED",
			"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "` + a.either("ENABLED", "DISABLED") + `"}}}`
	case what == "Query" && !a.sick:
		return http.StatusOK, `{"Items": [{"PK": {"S": "T#default#PEOPLE"}, "SK": {"S": "user:ana"}, "Body": {"B": "W10="}}],
			"Count": 1, "ScannedCount": 1}`
	case what == "Query":
		return http.StatusOK, `{"Items": [], "Count": 0, "ScannedCount": 0}`
	case what == "GetSecretValue" && strings.Contains(body, "slack-token"):
		return http.StatusOK, `{"SecretString": "xoxb-1-2-token"}`
	case (what == "DescribeSecret" || what == "GetSecretValue") && a.sick:
		return http.StatusBadRequest, `{"__type": "ResourceNotFoundException", "message": "Secrets Manager can't find it"}`
	case what == "DescribeSecret":
		return http.StatusOK, `{"Name": "x", "VersionIdsToStages": {"v1": ["AWSCURRENT"]}}`
	case what == "GetSecretValue":
		return http.StatusOK, `{"SecretString": "a secret"}`
	case path == "/v2/email/account":
		return http.StatusOK, `{"ProductionAccessEnabled": ` + a.either("true", "false") + `, "SendingEnabled": ` +
			a.either("true", "false") + `}`
	case strings.HasPrefix(path, "/v2/email/identities/"):
		return http.StatusOK, `{"VerifiedForSendingStatus": ` + a.either("true", "false") + `}`
	case what == "ListTopics":
		return http.StatusOK, `<ListTopicsResponse><ListTopicsResult><Topics><member><TopicArn>` + topic +
			`</TopicArn></member></Topics></ListTopicsResult></ListTopicsResponse>`
	case what == "ListSubscriptionsByTopic":
		return http.StatusOK, `<ListSubscriptionsByTopicResponse><ListSubscriptionsByTopicResult><Subscriptions><member>
			<SubscriptionArn>` + a.either(topic+":s1", "PendingConfirmation") + `</SubscriptionArn></member></Subscriptions>
			</ListSubscriptionsByTopicResult></ListSubscriptionsByTopicResponse>`
	case what == "POST /api/auth.test":
		return http.StatusOK, `{"ok": true}`
	default:
		a.t.Errorf("an unexpected request: %s %s", what, body)
		return http.StatusNotFound, `{}`
	}
}

// functions are those of the stack shop, with names that CloudFormation has cut, and one of another stack.
func (a *patient) functions() string {
	variables := map[string]string{
		lambdafn.EnvTable: "shop-runs", lambdafn.EnvKeyRing: "ring", lambdafn.EnvLinkKeyRing: "links",
		lambdafn.EnvMailFrom: "approvals@example.com", lambdafn.EnvSlackToken: "slack-token",
		lambdafn.EnvSlackSecret: a.either("slack-signing", ""), "COUNTERSIGN_SECRETS_PREFIX": "shop/tools/",
		lambdafn.EnvIAMTenant: "default", lambdafn.EnvOperators: a.either("arn:aws:iam::123456789012:role/ops", ""),
		lambdafn.EnvMetrics: a.either("on", "off"),
	}
	var all []map[string]any
	for _, name := range append(slices.Clone(deployedFunctions), "other") {
		own := maps.Clone(variables)
		if name != "HttpFunction" && name != "SweepFunction" { // the two that tell people
			maps.DeleteFunc(own, func(name, _ string) bool {
				return slices.Contains([]string{lambdafn.EnvMailFrom, lambdafn.EnvSlackToken, lambdafn.EnvSlackSecret, lambdafn.EnvLinkKeyRing}, name)
			})
		}
		if !a.sick || name != "ToolFunction" {
			all = append(all, map[string]any{"FunctionName": "sho-" + name[:4] + "-X1", "State": "Active",
				"LoggingConfig":    map[string]any{"LogGroup": "/aws/lambda/shop-" + strings.ToLower(strings.TrimSuffix(name, "Function"))},
				"LastUpdateStatus": "Successful", "Environment": map[string]any{"Variables": own}})
		}
	}
	text, err := json.Marshal(map[string]any{"Functions": all})
	require.NoError(a.t, err)
	return string(text)
}

const doctorAgent = `name: shop
system: You help.
model: {provider: bedrock, id: anthropic.claude-test}
tools:
  - name: orders.get
    kind: http
    description: Reads an order.
    effect: read
    method: GET
    url: "https://shop.example.com/orders/{id}"
    headers: {Authorization: "Bearer ${secret:SHOP}"}
    schema: {type: object, properties: {id: {type: string}}, required: [id]}
`

// TestDoctor looks at a deployment that is well, and at one that has every illness; each is told with what mends it.
// Nothing is written to either.
func TestDoctor(t *testing.T) {
	d := newHarness(t, doctorAgent, "")
	t.Chdir(d.dir)
	a := &patient{t: t}
	server := httptest.NewServer(a)
	defer server.Close()
	models := standins.NewBedrock(standins.Reply{Blocks: []standins.Block{standins.Text("Yes.")}},
		standins.Failure{Status: http.StatusForbidden, Code: "AccessDeniedException", Message: "no access"},
		standins.Failure{Status: http.StatusBadRequest, Code: "ValidationException", Message: "on-demand throughput isn’t supported"})
	defer models.Close()
	d.env = map[string]string{lambdafn.EnvSlackURL: server.URL}
	setAWS(t, map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": models.URL()})
	well := d.exits(0, "doctor", "--stack", "shop")
	require.NotContains(t, well.stdout.String(), "wrong")
	for _, name := range []string{"functions", "versions", "clock", "quotas", "table", "secrets", "people", "operators",
		"mail", "slack", "alarms", "model bedrock:anthropic.claude-test"} {
		require.Contains(t, well.stdout.String(), "ok      "+name+"\n")
	}
	require.Contains(t, well.stdout.String(), "unseen  the rest   IAM (models were asked as you")

	a.sick = true
	ill := d.exits(1, "doctor", "--stack", "shop", "--json")
	var doc doctorResult
	require.NoError(t, json.Unmarshal([]byte(ill.stdout.String()), &doc))
	require.False(t, doc.OK)
	told := ""
	for _, c := range doc.Checks {
		for _, f := range c.Findings {
			require.NotEmpty(t, f.Mend, f.Problem)
			told += fmt.Sprintf("%s: %s -> %s\n", c.Check, f.Problem, f.Mend)
		}
	}
	for _, want := range []string{
		"functions: ToolFunction is not there -> sam build", "functions: metrics are off: alarms on runs and waits are silent -> sam build && sam deploy --", "versions: StepFunction runs ",
		"0123456789ab", "clock: this machine's clock differs from AWS's by ", "quotas: the account runs at most 10",
		"table: the table can be deleted -> aws dynamodb update-table --deletion-protection-enabled --table-name shop-runs",
		"table: the table keeps expired links", "table: the table cannot be restored", "names the secret ring",
		"secrets: COUNTERSIGN_LINK_KEYRING of HttpFunction names the secret links",
		"people: nobody of tenant default can be told", "operators: nobody is in group:operators",
		"mail: SES is in its sandbox", "mail: SES has stopped sending", "mail: SES has not verified approvals@example.com",
		"slack: the app has not the scope chat:write", "slack: clicks in Slack are refused",
		"alarms: nobody hears the alarms", "model bedrock:anthropic.claude-test: agent shop: ", "Anthropic wants a form",
	} {
		require.Contains(t, told, want)
	}
	for _, what := range a.asked {
		require.NotRegexp(t, "^(PutItem|UpdateItem|DeleteItem|TransactWriteItems|PUT|DELETE)", what)
	}
	require.NoDirExists(t, d.home())

	a.sick = false
	require.Contains(t, d.exits(1, "doctor", "--stack", "shop").stdout.String(), "an inference profile such as eu.anthropic.claude-test")
	none := d.exits(2, "doctor", "--stack", "nowhere")
	require.Contains(t, none.stderr.String(), "there are no functions of stack nowhere in eu-central-1")
}

// TestDoctorOfALaptop looks at this machine: files that others can read, secrets that are not there, a bad agent.
func TestDoctorOfALaptop(t *testing.T) {
	d := newHarness(t, strings.Replace(doctorAgent, "provider: bedrock, id: anthropic.claude-test",
		"provider: script, file: model.jsonl", 1), `{"text": "Done."}`)
	t.Chdir(d.dir)
	ill := d.exits(1, "doctor")
	require.Contains(t, ill.stdout.String(), "wrong   secrets    secret SHOP of agent shop is not there\n        mend:      put SHOP:")
	require.NoDirExists(t, d.home())

	d.write("home/secrets.yaml", "SHOP: \"a secret\"\n")
	d.exits(0, "doctor")
	d.write("home/token", "t")
	require.NoError(t, os.Chmod(filepath.Join(d.home(), "token"), 0o644)) //nolint:gosec // that is what is found
	ill = d.exits(1, "doctor", "--json")
	require.Contains(t, ill.stdout.String(), "others can read it")
	require.Contains(t, ill.stdout.String(), "chmod 600 ")

	require.NoError(t, os.Remove(filepath.Join(d.home(), "token")))
	d.write("agent.yaml", "name: shop\nsystem: s\nmodel: {provider: script, file: model.jsonl}\n"+
		"orchestrator: {enabled: true, planner: {provider: openai, id: p, baseURL: \"http://127.0.0.1:1/v1\"}}\n")
	ill = d.exits(1, "doctor")
	require.Contains(t, ill.stdout.String(), "wrong   model openai:p@http://127.0.0.1:1/v1")

	reply := newChatReply(`{"content": "Yes."}`, "stop")
	c := newChatServer(t, reply, reply, chatResponse{body: strings.TrimSuffix(reply.body, "}") + `, "usage": {"prompt_tokens": 3, "completion_tokens": 1}}`})
	silent := "name: shop\nsystem: s\nmodel: {provider: openai, id: m, baseURL: \"" + c.URL + "/v1\"}\n"
	d.write("agent.yaml", silent)
	d.exits(0, "doctor")
	d.write("agent.yaml", silent+"limits: {tokens: 1000}\n")
	ill = d.exits(1, "doctor")
	require.Contains(t, ill.stdout.String(), "the model does not say how many tokens it used, so budgets hold nothing back")
	d.exits(0, "doctor")

	d.write("agent.yaml", "name: shop\ncolour: red\n")
	ill = d.exits(1, "doctor")
	require.Contains(t, ill.stdout.String(), "colour: got an unknown key")
}
