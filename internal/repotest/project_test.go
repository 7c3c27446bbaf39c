package repotest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func project(t *testing.T, replace func(file, text string) string) *Project {
	t.Helper()
	p, err := Read(root, replace)
	require.NoError(t, err)
	return p
}

// What cannot be read is refused with its line.
func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":       {"a: [", "read template"},
		"nothing":       {"", "want one document"},
		"two documents": {"a: 1\n---\nb: 1\n", "want one document"},
		"a key twice":   {"a: 1\nb: 1\na: 2\n", "already defined at [1:1]"},
		"an anchor":     {"a: &x 1\nb: 1\n", "line 1: Anchor"},
		"an alias":      {"a: 1\nb: *x\n", "line 2: Alias"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseYAML([]byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Each function may do exactly this, and nothing else (R16). A change of a role is a change of this list.
func TestGrants(t *testing.T) {
	const (
		toolFunctions = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${ToolFunctionPrefix}*"

		m     = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:stateMachine:${AWS::StackName}-agent"
		blobs = "${BlobsBucket.Arn}/T/*"
		dyn   = "dynamodb.${AWS::Region}.amazonaws.com"
		s3    = "s3.${AWS::Region}.amazonaws.com"
		sqs   = "sqs.${AWS::Region}.amazonaws.com"

		secrets      = "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${AWS::StackName}"
		toolSecrets  = secrets + "/tools/*"
		modelSecrets = secrets + "/models/*"
		executions   = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${AWS::StackName}-agent:*"
		foundation   = "arn:${AWS::Partition}:bedrock:*::foundation-model/${BedrockModels}"
		profiles     = "arn:${AWS::Partition}:bedrock:${AWS::Region}:${AWS::AccountId}:inference-profile/*${BedrockModels}"
	)
	via := func(action string, services ...string) string {
		by := services[0]
		if len(services) > 1 {
			by = "[" + strings.Join(services, ", ") + "]"
		}
		return "kms:" + action + " on DataKey.Arn if {StringEquals: {kms:ViaService: " + by + "}}"
	}
	own := func(logs string, more ...string) []string {
		return append(more, "logs:CreateLogStream on "+logs+".Arn", "logs:PutLogEvents on "+logs+".Arn",
			"xray:PutTraceSegments on *", "xray:PutTelemetryRecords on *")
	}
	table := []string{"dynamodb:GetItem on RunsTable.Arn", "dynamodb:Query on RunsTable.Arn",
		"dynamodb:PutItem on RunsTable.Arn", "dynamodb:UpdateItem on RunsTable.Arn"}
	bucket := []string{"s3:GetObject on " + blobs, "s3:PutObject on " + blobs, "s3:ListBucket on BlobsBucket.Arn"}
	data := append(slices.Clone(table), append(bucket, via("Decrypt", dyn, s3), via("GenerateDataKey", dyn, s3))...)
	with := func(base []string, more ...string) []string { return append(slices.Clone(base), more...) }

	const put = "events:PutEvents on arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:event-bus/${EventBusName} if {StringEquals: {events:source: countersign}}"
	const check = "dynamodb:ConditionCheckItem on RunsTable.Arn"
	const sendsMail = "ses:SendEmail on arn:${AWS::Partition}:ses:${AWS::Region}:${AWS::AccountId}:identity/${MailIdentity} if {StringEquals: {ses:FromAddress: MailFrom}}"
	want := map[string][]string{
		"StepRole": own("StepLogs", with(data, put,
			"bedrock:InvokeModel on "+foundation, "bedrock:InvokeModelWithResponseStream on "+foundation,
			"bedrock:InvokeModel on "+profiles, "bedrock:InvokeModelWithResponseStream on "+profiles,
			"bedrock:CountTokens on "+foundation, "bedrock:CountTokens on "+profiles,
			"states:StartExecution on "+m, "states:SendTaskSuccess on "+m, "states:StopExecution on "+executions,
			"secretsmanager:GetSecretValue on "+modelSecrets)...),
		"ToolRole": own("ToolLogs", with(data, put, check,
			"states:StartExecution on "+m, "states:SendTaskSuccess on "+m, "states:StopExecution on "+executions,
			"lambda:InvokeFunction on "+toolFunctions,
			"secretsmanager:GetSecretValue on "+toolSecrets)...),
		"ApproveRole": own("ApproveLogs", "dynamodb:GetItem on RunsTable.Arn", "dynamodb:UpdateItem on RunsTable.Arn",
			"dynamodb:Query on RunsTable.Arn", "dynamodb:PutItem on RunsTable.Arn", "s3:GetObject on "+blobs,
			"s3:ListBucket on BlobsBucket.Arn", via("Decrypt", dyn, s3),
			"states:SendTaskSuccess on "+m, sendsMail),
		"HttpRole": own("HttpLogs", with(append(slices.Clone(table), bucket...), via("Decrypt", dyn, s3, sqs),
			via("GenerateDataKey", dyn, s3, sqs), put, "sqs:SendMessage on EventDeadLetters.Arn",
			"dynamodb:Query on ${RunsTable.Arn}/index/lists",
			"states:StartExecution on "+m, "states:SendTaskSuccess on "+m, "states:StopExecution on "+executions, sendsMail,
			check)...),
		"SweepRole": own("SweepLogs", with(table, put, check, "dynamodb:Query on ${RunsTable.Arn}/index/lists",
			"s3:GetObject on "+blobs, "s3:PutObject on "+blobs, "s3:ListBucket on BlobsBucket.Arn", via("Decrypt", dyn, s3,
				sqs), via("GenerateDataKey", dyn, s3, sqs),
			"states:ListExecutions on "+m, "states:StartExecution on "+m, "states:SendTaskSuccess on "+m,
			"states:DescribeExecution on "+executions,
			"states:StopExecution on "+executions, "sqs:SendMessage on SweepDeadLetters.Arn", sendsMail)...),
		"StateMachineRole": {
			"lambda:InvokeFunction on StepFunction.Arn", "lambda:InvokeFunction on ToolFunction.Arn",
			"lambda:InvokeFunction on ApproveFunction.Arn",
			"states:StartExecution on " + m, "logs:CreateLogDelivery on *", "logs:GetLogDelivery on *",
			"logs:UpdateLogDelivery on *",
			"logs:DeleteLogDelivery on *", "logs:ListLogDeliveries on *", "logs:PutResourcePolicy on *",
			"logs:DescribeResourcePolicies on *",
			"logs:DescribeLogGroups on *", "xray:PutTraceSegments on *", "xray:PutTelemetryRecords on *",
			"xray:GetSamplingRules on *",
			"xray:GetSamplingTargets on *",
		},
		"EventsRole": {"states:StartExecution on AgentStateMachine"},
		"SweepTimerRole": {
			"lambda:InvokeFunction on SweepFunction.Arn", "sqs:SendMessage on SweepDeadLetters.Arn", via("Decrypt", sqs),
			via("GenerateDataKey", sqs),
		},
	}
	p := project(t, nil)
	var ids []string
	for _, r := range p.Resources(roleType) {
		ids = append(ids, r.ID)
		require.ElementsMatch(t, want[r.ID], p.Grants(r.ID), r.ID)
	}
	require.Len(t, ids, len(want))
}

// Each role is assumed by one service.
func TestTrust(t *testing.T) {
	want := map[string]string{"StateMachineRole": "states.amazonaws.com", "EventsRole": "events.amazonaws.com",
		"SweepTimerRole": "scheduler.amazonaws.com"}
	for _, r := range project(t, nil).Resources(roleType) {
		service := want[r.ID]
		if service == "" {
			service = "lambda.amazonaws.com"
		}
		trust := r.Properties.Get("AssumeRolePolicyDocument", "Statement").Each()
		require.Len(t, trust, 1, r.ID)
		require.Equal(t, "{Service: "+service+"}", trust[0].Get("Principal").Short(), r.ID)
		require.Equal(t, "sts:AssumeRole", trust[0].Get("Action").Short(), r.ID)
	}
}

// Every parameter says what it is, has a default, and refuses what it cannot use.
func TestParameters(t *testing.T) {
	p := project(t, nil)
	var grouped []string
	for _, g := range p.Template.Get("Metadata", "AWS::CloudFormation::Interface", "ParameterGroups").Each() {
		for _, n := range g.Get("Parameters").Each() {
			grouped = append(grouped, n.String())
		}
	}
	var names []string
	for _, e := range p.Template.Get("Parameters").Entries {
		names = append(names, e.Key)
		require.NotEmpty(t, e.Value.Get("Description").String(), e.Key)
		require.NotNil(t, e.Value.Get("Default"), e.Key)
		switch e.Value.Get("Type").String() {
		case "String":
			bounded := e.Value.Get("AllowedPattern") != nil && e.Value.Get("ConstraintDescription") != nil || e.Value.Get("AllowedValues") != nil
			require.True(t, bounded, "%s: want AllowedPattern with ConstraintDescription, or AllowedValues", e.Key)
		case "Number":
			require.True(t, e.Value.Get("MinValue") != nil || e.Value.Get("AllowedValues") != nil,
				"%s: want MinValue or AllowedValues", e.Key)
		}
	}
	require.ElementsMatch(t, names, grouped, "each parameter stands in one group")
}

// samconfig.toml overrides parameters that are there.
func TestSamconfig(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "samconfig.toml"))
	require.NoError(t, err)
	p := project(t, nil)
	overrides := 0
	for line := range strings.Lines(string(b)) {
		if _, list, ok := strings.Cut(line, "parameter_overrides = "); ok {
			for _, pair := range strings.Fields(strings.Trim(strings.TrimSpace(list), `"`)) {
				name, _, _ := strings.Cut(pair, "=")
				require.NotNil(t, p.Template.Get("Parameters", name), "samconfig.toml: %s: no such parameter", name)
				overrides++
			}
		}
	}
	require.Positive(t, overrides)
}
