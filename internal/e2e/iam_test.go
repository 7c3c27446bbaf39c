package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/repotest"
)

// permits counts, over all tests, what the functions' roles permitted of their requests.
var permits = ledger{granted: map[string]map[string]int{}}

// ledger is uses by function and line of its role.
type ledger struct {
	mu      sync.Mutex
	granted map[string]map[string]int
}

func (l *ledger) add(function string, lines []repotest.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted[function] == nil {
		l.granted[function] = map[string]int{}
	}
	for _, line := range lines {
		l.granted[function][line.Text] += 0
	}
}

func (l *ledger) use(function string, line repotest.Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[function][line.Text]++
}

// byService are actions that AWS makes with a function's role, and no request of a function.
var byService = []string{"logs:", "xray:", "kms:", "sqs:"}

// rare are the grants, by function and beginning, that the tests do not need, each for its own reason.
var rare = []string{
	"step bedrock:CountTokens", "step bedrock:InvokeModel", // profiles, and models that do not stream
	"step dynamodb:GetItem",                                                                  // heads of runs below one that fails
	"step states:SendTaskSuccess", "step states:StartExecution", "step states:StopExecution", // the same
	"step secretsmanager:GetSecretValue",                       // keys of servers that are not Bedrock
	"tool lambda:InvokeFunction",                               // internal/tools has functions
	"tool states:StopExecution", "tool states:SendTaskSuccess", // delegated calls that nobody waits for any more, or yet
	"http secretsmanager:GetSecretValue", // internal/lambdafn has callbacks
	"http s3:DeleteObject",               // deletions by people; those here are the sweep's
	"http dynamodb:UpdateItem",           // forks
	"http dynamodb:GetItem",              // workspaces of Slack
	"http ses:SendEmail", "sweep ses:SendEmail",
	"sweep states:SendTaskSuccess",                                         // wake-ups that were lost
	"step dynamodb:ConditionCheckItem", "tool dynamodb:ConditionCheckItem", // blobs that are being deleted
	"http dynamodb:ConditionCheckItem", "sweep dynamodb:ConditionCheckItem",
	"step s3:ListBucket", "tool s3:ListBucket", "http s3:ListBucket", // blobs that are missing
}

// report fails where no request used a grant, if all tests ran. Logs, traces, keys and queues are used by AWS itself.
func (l *ledger) report() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var unused []string
	for _, function := range functions {
		lines, used := l.granted[function], 0
		for line, n := range lines {
			begins := func(prefix string) bool { return strings.HasPrefix(function+" "+line, prefix) }
			byAWS := func(prefix string) bool { return begins(function + " " + prefix) }
			if used += n; n == 0 && !slices.ContainsFunc(rare, begins) && !slices.ContainsFunc(byService, byAWS) {
				unused = append(unused, "functions/"+function+": "+line)
			}
		}
		fmt.Printf("IAM: functions/%s: %d requests, all permitted by %d lines\n", function, used, len(lines))
	}
	if len(unused) == 0 || flag.Lookup("test.run").Value.String() != "" || testing.Short() || len(l.granted) == 0 {
		return nil
	}
	return fmt.Errorf("no request needed these grants:\n%s", strings.Join(unused, "\n"))
}

// requestsOf are the requests that IAM evaluates for one of the wire.
func requestsOf(v repotest.Values, service string, q *http.Request, body []byte) []repotest.Request {
	op := q.Header.Get("X-Amz-Target")
	op = op[strings.Index(op, ".")+1:]
	var in map[string]any
	_ = json.Unmarshal(body, &in) // a body of no known form names nothing, and nothing is permitted on that
	text := func(key string) string { s, _ := in[key].(string); return s }
	one := func(action, resource string, context ...string) []repotest.Request {
		r := repotest.Request{Action: action, Resource: resource, Context: map[string][]string{}}
		for i := 0; i+1 < len(context); i += 2 {
			r.Context[context[i]] = append(r.Context[context[i]], context[i+1])
		}
		return []repotest.Request{r}
	}
	switch service {
	case "dynamodb":
		if op == "TransactWriteItems" {
			return inTransaction(v, in)
		}
		return one("dynamodb:"+op, tableARN(v, in), "dynamodb:LeadingKeys", leadingKey(in))
	case "states":
		on := text("stateMachineArn")
		switch op {
		case "SendTaskSuccess":
			on = v["AgentStateMachine"]
		case "StopExecution", "DescribeExecution":
			on = text("executionArn")
		}
		return one("states:"+op, on)
	case "events":
		var all []repotest.Request
		for _, e := range in["Entries"].([]any) {
			entry := e.(map[string]any)
			all = append(all, one("events:PutEvents", v.ARN("events", fmt.Sprint("event-bus/", entry["EventBusName"])), "events:source", fmt.Sprint(entry["Source"]))...)
		}
		return all
	case "secretsmanager":
		on := text("SecretId")
		if !strings.HasPrefix(on, "arn:") {
			on = v.ARN("secretsmanager", "secret:"+on+"-1a2b3c")
		}
		return one("secretsmanager:"+op, on)
	case "lambda":
		name := strings.TrimSuffix(strings.TrimPrefix(q.URL.Path, "/2015-03-31/functions/"), "/invocations")
		if !strings.HasPrefix(name, "arn:") {
			name = v.ARN("lambda", "function:"+name)
		}
		return one("lambda:InvokeFunction", name)
	case "ses":
		from := text("FromEmailAddress")
		_, domain, _ := strings.Cut(from, "@")
		return one("ses:SendEmail", v.ARN("ses", "identity/"+domain), "ses:FromAddress", from)
	case "bedrock":
		return inModel(v, q, in)
	case "s3":
		bucket, key, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
		on := "arn:" + v["AWS::Partition"] + ":s3:::" + bucket
		switch {
		case q.Method == http.MethodPut:
			return one("s3:PutObject", on+"/"+key)
		case q.Method == http.MethodDelete:
			return one("s3:DeleteObject", on+"/"+key)
		case q.URL.Query().Has("list-type"):
			return one("s3:ListBucket", on)
		default:
			return one("s3:GetObject", on+"/"+key)
		}
	}
	return one(service+":unknown", q.URL.Path)
}

// inModel are the requests of Bedrock's runtime. A guardrail is applied by who asks.
func inModel(v repotest.Values, q *http.Request, in map[string]any) []repotest.Request {
	parts := strings.Split(q.URL.EscapedPath(), "/") // /model/ID/operation
	id, err := url.PathUnescape(parts[2])
	if err != nil {
		id = parts[2]
	}
	action := map[string]string{"converse-stream": "InvokeModelWithResponseStream", "count-tokens": "CountTokens"}[parts[3]]
	if action == "" {
		action = "InvokeModel"
	}
	on := "arn:" + v["AWS::Partition"] + ":bedrock:" + v["AWS::Region"] + "::foundation-model/" + id
	all := []repotest.Request{{Action: "bedrock:" + action, Resource: on}}
	if g, ok := in["guardrailConfig"].(map[string]any); ok {
		guardrail := fmt.Sprint("guardrail/", g["guardrailIdentifier"])
		all = append(all, repotest.Request{Action: "bedrock:ApplyGuardrail", Resource: v.ARN("bedrock", guardrail)})
	}
	return all
}

func tableARN(v repotest.Values, in map[string]any) string {
	on := v.ARN("dynamodb", fmt.Sprint("table/", in["TableName"]))
	if index, ok := in["IndexName"]; ok {
		on += fmt.Sprint("/index/", index)
	}
	return on
}

// inTransaction are the requests that a transaction is evaluated as.
func inTransaction(v repotest.Values, in map[string]any) (all []repotest.Request) {
	names := map[string]string{"Put": "PutItem", "Update": "UpdateItem", "ConditionCheck": "ConditionCheckItem", "Delete": "DeleteItem"}
	for _, item := range in["TransactItems"].([]any) {
		for kind, op := range item.(map[string]any) {
			op := op.(map[string]any)
			all = append(all, repotest.Request{
				Action: "dynamodb:" + names[kind], Resource: tableARN(v, op), Context: map[string][]string{"dynamodb:LeadingKeys": {leadingKey(op)}},
			})
		}
	}
	return all
}

// leadingKey is the partition key of an item that is read or written, or of a query.
func leadingKey(in map[string]any) string {
	for _, of := range []string{"Key", "Item"} {
		if item, ok := in[of].(map[string]any); ok {
			key, _ := item["PK"].(map[string]any)
			return fmt.Sprint(key["S"])
		}
	}
	// the partition is the condition's first comparison
	condition, _ := in["KeyConditionExpression"].(string)
	values, _ := in["ExpressionAttributeValues"].(map[string]any)
	_, after, _ := strings.Cut(condition, "=")
	placeholder, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	value, _ := values[strings.Trim(placeholder, "()")].(map[string]any)
	return fmt.Sprint(value["S"])
}

// What a role does not permit is refused: other kinds of items, other tables, another source of events.
func TestIAMRefuses(t *testing.T) {
	p, err := project()
	require.NoError(t, err)
	v := p.Deployed(repotest.Values{"RunsTable": "countersign"})
	permitted := func(function, target, body string) bool {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", nil)
		require.NoError(t, err)
		q.Header.Set("X-Amz-Target", target)
		lines, err := p.Lines(resource(function)+"Role", v)
		require.NoError(t, err)
		service := map[string]string{"DynamoDB_20120810": "dynamodb", "AWSEvents": "events", "secretsmanager": "secretsmanager"}[strings.Split(target, ".")[0]]
		for _, asked := range requestsOf(v, service, q, []byte(body)) {
			if _, ok := repotest.Permit(lines, asked); !ok {
				return false
			}
		}
		return true
	}
	put := func(pk string) string { return `{"TableName":"countersign","Item":{"PK":{"S":"` + pk + `"}}}` }
	list := func(index string) string {
		return `{"TableName":"countersign","IndexName":"lists","KeyConditionExpression":"#0 = :0","ExpressionAttributeValues":{":0":{"S":"` + index + `"}}}`
	}
	for _, c := range []struct {
		function, target, body string
		want                   bool
	}{
		{"tool", "DynamoDB_20120810.PutItem", put("T#acme#RUN#r1"), true},
		{"tool", "DynamoDB_20120810.PutItem", put("T#acme#PEOPLE"), false},
		{"tool", "DynamoDB_20120810.PutItem", put("LINK#l1"), false},
		{"step", "DynamoDB_20120810.PutItem", put("T#acme#GRANT#payer"), false},
		{"tool", "DynamoDB_20120810.PutItem", strings.Replace(put("T#acme#RUN#r1"), "countersign", "another", 1), false},
		{"http", "DynamoDB_20120810.PutItem", put("T#acme#PEOPLE"), false},
		{"http", "DynamoDB_20120810.GetItem", `{"TableName":"countersign","Key":{"PK":{"S":"T#acme#PEOPLE"}}}`, true},
		{"http", "DynamoDB_20120810.Query", `{"TableName":"countersign","KeyConditionExpression":"#0 = :0 AND #1 >= :1","ExpressionAttributeValues":{":0":{"S":"SWEEP"}}}`, false},
		{"http", "DynamoDB_20120810.Query", list("T#acme#APPROVALS#pending"), true},
		{"http", "DynamoDB_20120810.Query", list("T#acme#OUTBOX#3"), false},
		{"sweep", "DynamoDB_20120810.Query", list("T#acme#OUTBOX#3"), true},
		{"sweep", "DynamoDB_20120810.Query", list("T#acme#GRANTS"), false},
		{"approve", "DynamoDB_20120810.TransactWriteItems", `{"TransactItems":[{"Put":` + put("T#acme#APPROVAL#a1") + `},{"Put":` + put("T#acme#GRANT#payer") + `}]}`, false},
		{"step", "AWSEvents.PutEvents", `{"Entries":[{"EventBusName":"default","Source":"countersign"}]}`, true},
		{"step", "AWSEvents.PutEvents", `{"Entries":[{"EventBusName":"default","Source":"countersign.requests"}]}`, false},
		{"tool", "secretsmanager.GetSecretValue", `{"SecretId":"` + v["KeyRing"] + `"}`, true},
		{"tool", "secretsmanager.GetSecretValue", `{"SecretId":"` + v["LinkKeyRing"] + `"}`, false},
		{"step", "secretsmanager.GetSecretValue", `{"SecretId":"countersign-dev/models/acme/KEY"}`, true},
		{"step", "secretsmanager.GetSecretValue", `{"SecretId":"countersign-dev/tools/acme/KEY"}`, false},
	} {
		require.Equal(t, c.want, permitted(c.function, c.target, c.body), "%s %s %s", c.function, c.target, c.body)
	}
}
