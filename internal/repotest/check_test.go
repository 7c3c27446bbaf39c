package repotest

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/observe"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
)

const (
	functionType = "AWS::Serverless::Function"
	machineType  = "AWS::Serverless::StateMachine"
	roleType     = "AWS::IAM::Role"
	queueType    = "AWS::SQS::Queue"
)

// rules are what the validators do not see. A rule gives the problems it finds. TestProjectIsSound runs all of them on
// the files as they are, TestRulesBite on broken ones.
var rules = map[string]func(p *Project) []string{
	"values": values, "names": names, "references": references, "build": build, "timeouts": timeouts,
	"variables": variables, "secrets": secretsHeld, "partitions": partitions, "substitutions": substitutions, "principals": principals, "bucket": bucket,
	"events": lossyEvents, "api": api, "alarms": alarms, "aliases": aliases,
}

func TestProjectIsSound(t *testing.T) {
	for name, rule := range rules {
		require.Empty(t, rule(project(t, nil)), name)
	}
}

func TestRulesBite(t *testing.T) {
	woken := map[string]bool{}
	for _, b := range []struct{ rule, file, old, new, want string }{
		{"values", TemplateFile, "Runtime: provided.al2023", "Runtime: go1.x", "StepFunction: Runtime: want provided.al2023"},
		{"values", TemplateFile, "Role: !GetAtt ToolRole.Arn", "Role: !GetAtt StepRole.Arn",
			"ToolFunction: Role: want ToolRole.Arn"},
		{"values", TemplateFile, "Role: !GetAtt ToolRole.Arn\n",
			"Role: !GetAtt ToolRole.Arn\n      Policies: [AdministratorAccess]\n",
			"ToolFunction: Policies: want nothing"},
		{"values", TemplateFile, "DeletionPolicy: Retain", "DeletionPolicy: Delete", "DataKey: DeletionPolicy: want Retain"},
		{"values", TemplateFile, "IncludeExecutionData: false", "IncludeExecutionData: true",
			"Logging/IncludeExecutionData: want false"},

		{"names", TemplateFile, "ReservedConcurrentExecutions: !If", "ReservedConcurrency: !If",
			"StepFunction: ReservedConcurrency: no such property"},
		{"names", TemplateFile, "CloudWatchLogsLogGroup: {LogGroupArn:", "CloudWatchLogsLogGroup: {Arn:",
			"AgentStateMachine: Arn: no such"},

		{"references", TemplateFile, "COUNTERSIGN_BUCKET: !Ref BlobsBucket", "COUNTERSIGN_BUCKET: !Ref BlobBucket",
			"Globals: BlobBucket: want"},
		{"references", TemplateFile, "!If [ShowContent,", "!If [Show,", "Globals: Show: want"},
		{"references", TemplateFile, "StepFunctionArn: !Sub \"${StepFunction.Arn}:live\"", "StepFunctionArn: !GetAtt StepFunction.Url",
			"StepFunction.Url: no such attribute"},
		{"references", TemplateFile, "OTEL_SERVICE_NAME: !Ref AWS::StackName",
			"OTEL_SERVICE_NAME: !GetAtt AgentStateMachine.Name",
			"circle: StepFunction to AgentStateMachine to"},
		{"references", TemplateFile, "Resource: !GetAtt StepLogs.Arn", "Resource: !Sub \"${StepFunction.Arn}/*\"",
			"circle: StepFunction to StepRole to StepFunction"},

		{"build", MakefileName, "\nbuild-HttpFunction:", "\nbuild-HTTPFunction:", "build-HttpFunction: want"},
		{"build", MakefileName, "./functions/sweep", "./functions/http", "build-SweepFunction: want"},
		{"build", TemplateFile, "{BuildMethod: makefile, BuildInSource: true}", "{BuildMethod: go1.x}",
			"Metadata: want {BuildMethod: makefile, BuildInSource: true}"},

		{"timeouts", TemplateFile, "Timeout: 880 # R7: less", "Timeout: 900 # R7: less",
			"want less than the 900 s of state RecordFailure"},
		{"timeouts", TemplateFile, "Timeout: 30 #", "Timeout: 60 #", "want less than the 60 s of state Approve"},
		{"timeouts", TemplateFile, "Timeout: !If [UseStreaming, 300, 29] #", "Timeout: !If [UseStreaming, 300, 30] #", "want less than the gateway's 30000 ms"},
		{"timeouts", MachineFile, `"TimeoutSeconds": 900`, `"TimeoutSeconds": 600`, "want less than the 600 s of state Step"},

		{"variables", TemplateFile, "COUNTERSIGN_TABLE:", "COUNTERSIGN_TABLES:", "COUNTERSIGN_TABLE: the functions read it"},
		{"variables", TemplateFile, "COUNTERSIGN_TABLE:", "COUNTERSIGN_TABLES:", "COUNTERSIGN_TABLES: no function reads it"},
		{"secrets", TemplateFile, "COUNTERSIGN_KEYRING: !Ref KeyRing", "COUNTERSIGN_LINK_KEYRING: !Ref LinkKeyRing",
			"ToolFunction: its environment names [LinkKeyRing], want [KeyRing]"},
		{"secrets", TemplateFile, "                  - !Ref KeyRing\n", "                  - !Ref LinkKeyRing\n",
			"ToolRole: it may read [LinkKeyRing], want [KeyRing]"},
		{"secrets", TemplateFile, "COUNTERSIGN_KEYRING: !Ref KeyRing", "COUNTERSIGN_KEYRING: !Sub \"{{resolve:secretsmanager:${KeyRing}}}\"",
			"ToolFunction: COUNTERSIGN_KEYRING: want the name of a secret"},

		{"partitions", TemplateFile, "arn:${AWS::Partition}:iam::aws:policy", "arn:aws:iam::aws:policy", "template.yaml: arn:aws:"},
		{"partitions", TemplateFile, "s3.${AWS::Region}.${AWS::URLSuffix}", "s3.${AWS::Region}.amazonaws.com", "want ${AWS::URLSuffix}"},
		{"partitions", MachineFile, "arn:${Partition}:states", "arn:aws:states", "statemachine/agent.asl.json: arn:aws:"},
		{"partitions", TemplateFile, "service-role/AWSLambdaENIManagementAccess", "AdministratorAccess", "StepRole: ManagedPolicyArns: want"},

		{"substitutions", TemplateFile, "        ToolFunctionArn: !Sub \"${ToolFunction.Arn}:live\"\n", "", "want ToolFunctionArn"},
		{"substitutions", TemplateFile, "ToolFunctionArn: !Sub \"${ToolFunction.Arn}:live\"",
			"ToolFunctionArn: !Sub \"${StepFunction.Arn}:live\"",
			"ToolFunctionArn: want ${ToolFunction.Arn}:live"},
		{"substitutions", MachineFile, "${ToolFunctionArn}", "${ToolsArn}", "want ToolsArn"},

		{"principals", TemplateFile, "- Sid: OnlyOverTls\n            Effect: Deny",
			"- Sid: OnlyOverTls\n            Effect: Allow", "BlobsBucketPolicy: *"},
		{"principals", TemplateFile, `iam::${AWS::AccountId}:root`, `iam::123456789012:root`, "DataKey: {AWS: arn:"},
		{"principals", TemplateFile, "Principal: {Service: cloudwatch.", "Principal: {Service: events.", "DataKey: {Service: events.amazonaws.com}"},
		{"principals", TemplateFile, "            Condition:\n              ArnEquals:\n                aws:SourceArn: !GetAtt ExecutionEndedRule.Arn\n", "",
			"SweepDeadLettersPolicy: {Service: events.amazonaws.com}"},
		{"principals", TemplateFile, "      SourceArn: !GetAtt ExecutionEndedRule.Arn\n", "",
			"ExecutionEndedPermission: want a SourceArn"},

		{"bucket", TemplateFile, `aws:SecureTransport: "false"`, `aws:SecureTransport: "true"`,
			"denies everything without TLS"},
		{"bucket", TemplateFile, "AbortIncompleteMultipartUpload: {DaysAfterInitiation: 1}\n", "ExpirationInDays: 1\n",
			"want an end to uploads"},
		{"bucket", TemplateFile, "ExpiredObjectDeleteMarker: true", "ExpiredObjectDeleteMarker: false", "want an end to the markers"},

		{"events", TemplateFile, "DeadLetterConfig: {Arn: !GetAtt EventDeadLetters.Arn}",
			"DeadLetterConfig: {Arn: !GetAtt AlarmTopic.Arn}",
			"MessageRule: want a DeadLetterConfig"},
		{"events", TemplateFile, "RetryPolicy: {MaximumRetryAttempts: 3, MaximumEventAgeInSeconds: 300}",
			"RetryPolicy: {MaximumRetryAttempts: 3}",
			"SweepTimer: want a RetryPolicy"},
		{"events", TemplateFile, "{OnFailure: {Type: SQS, Destination: !GetAtt SweepDeadLetters.Arn}}", "{}",
			"SweepFunction: want EventInvokeConfig"},
		{"events", TemplateFile, "          RoleArn: !GetAtt EventsRole.Arn\n", "", "MessageRule: want a RoleArn"},
		{"events", TemplateFile, "!GetAtt AnswerRule.Arn, !If [UseAlarms, !GetAtt AlarmRule.Arn, !Ref AWS::NoValue]", "!GetAtt AnswerRule.Arn",
			"AlarmRule: want a policy of EventDeadLetters"},
		{"events", TemplateFile, `"alarm": <detail>}, "key": <id>, "tenant": "${EventTenant}"}`,
			`"alarm": <detail>}, "key": <id>, "tenant": <tenant>}`,
			`AlarmRule: InputTemplate: want "tenant": "${EventTenant}"`},
		{"events", TemplateFile, "{id: $.id, region: $.region", "{id: $.time, region: $.region",
			"AlarmRule: InputPathsMap: want id: $.id"},
		{"events", TemplateFile, "        source: [aws.cloudwatch]\n", "", "AlarmRule: EventPattern: want source"},

		{"api", TemplateFile, "AuthorizationType: !If [UseJwt, JWT, AWS_IAM]", "AuthorizationType: !If [UseJwt, JWT, NONE]",
			"$default: JWT or NONE"},
		{"api", TemplateFile, "RouteKey: POST /v1/callbacks/{token}", "RouteKey: POST /v1/audit", "POST /v1/audit: NONE"},
		{"api", TemplateFile, "RouteKey: ANY /v1/{proxy+}", "RouteKey: ANY /v2/{proxy+}", "want ANY /v1/{proxy+} with an authorizer"},
		{"api", TemplateFile, "RouteKey: ANY /v1/{proxy+}\n      AuthorizationType: JWT",
			"RouteKey: ANY /v1/{proxy+}\n      AuthorizationType: NONE", "ANY /v1/{proxy+}: NONE: want an authorizer"},
		{"api", TemplateFile, "[GET, POST, PUT, DELETE]", "[GET, POST, DELETE]", "HttpApi: AllowMethods: want PUT"},
		{"api", TemplateFile, "traceparent, x-amz-content-sha256, x-amz-date, x-amz-security-token]", "traceparent]", "HttpApi: AllowHeaders: want"},
		{"api", TemplateFile, `"method":"$context.httpMethod"`, `"path":"$context.path"`, "Format: $context.path"},

		{"alarms", TemplateFile, "MetricName: RunsRepaired", "MetricName: RunRepaired",
			"nobody emits Countersign RunRepaired"},
		{"alarms", TemplateFile, "MetricName: RunsRepaired", "MetricName: RunRepaired",
			"want an alarm on Countersign RunsRepaired"},
		{"alarms", TemplateFile, "Value: !GetAtt SweepDeadLetters.QueueName}", "Value: !GetAtt EventDeadLetters.QueueName}",
			"QueueName=SweepDeadLetters.QueueName"},

		{"aliases", TemplateFile, "    DependsOn: SweepFunctionAliaslive # which SAM makes\n", "", "ExecutionEndedPermission: want a function's alias"},
		{"aliases", TemplateFile, "TargetFunctionArn: !Sub \"${HttpFunction.Arn}:live\"", "TargetFunctionArn: !GetAtt HttpFunction.Arn",
			"StreamUrl: want a function's alias"},
	} {
		t.Run(b.rule+"/"+b.want, func(t *testing.T) {
			broken := project(t, func(file, text string) string {
				if file != b.file {
					return text
				}
				require.Contains(t, text, b.old, "the file has changed: break it elsewhere")
				return strings.Replace(text, b.old, b.new, 1)
			})
			require.Contains(t, strings.Join(rules[b.rule](broken), "\n"), b.want)
			woken[b.rule] = true
		})
	}
	require.Len(t, woken, len(rules), "each rule is woken by a broken file")
}

// wanted are the values that docs/reliability.md and docs/deploy.md promise, by type: a path below the properties
// or the resource, and the value in short, nothing where the property must not be there. * is the name of the
// function.
var wanted = map[string][][2]string{
	functionType: {
		{"Runtime", "provided.al2023"}, {"Handler", "bootstrap"}, {"Architectures", "[Architecture]"}, {"Tracing", "Active"},
		{"CodeUri", "."}, {"LoggingConfig/LogFormat", "JSON"}, {"LoggingConfig/LogGroup", "*Logs"},
		{"Role", "*Role.Arn"}, {"Policies", ""}, {"Events", ""}, {"Connectors", ""},
		{"AutoPublishAlias", "live"}, {"AutoPublishAliasAllProperties", "true"},
		{"DeploymentPreference", "{Type: DeploymentType, Alarms: [*Errors]}"},
	},
	machineType: {
		{"Role", "StateMachineRole.Arn"}, {"Policies", ""}, {"Events", ""}, {"Connectors", ""},
		{"Logging/IncludeExecutionData", "false"}, {"Logging/Level", "ALL"}, {"Tracing/Enabled", "true"},
		{"Logging/Destinations", "[{CloudWatchLogsLogGroup: {LogGroupArn: StateMachineLogs.Arn}}]"},
	},
	roleType:        {{"PermissionsBoundary", ""}},
	"AWS::KMS::Key": {{"DeletionPolicy", "RetainExceptOnCreate"}, {"UpdateReplacePolicy", "Retain"}, {"EnableKeyRotation", "true"}},
	"AWS::DynamoDB::Table": {
		{"DeletionPolicy", "Retain"}, {"UpdateReplacePolicy", "Retain"},
		{"PointInTimeRecoverySpecification/PointInTimeRecoveryEnabled", "true"},
		{"DeletionProtectionEnabled", "DeletionProtection"}, {"BillingMode", "PAY_PER_REQUEST"},
		{"SSESpecification", "{SSEEnabled: true, SSEType: KMS, KMSMasterKeyId: DataKey.Arn}"},
		{"KeySchema", schema(store.NamePK, store.NameSK)},
		{"TimeToLiveSpecification", "{AttributeName: TTL, Enabled: true}"},
		{"GlobalSecondaryIndexes", "[{IndexName: " + dynamo.IndexName + ", KeySchema: " +
			schema(store.NameIndex, store.NameIndexSort) + ", Projection: {ProjectionType: ALL}}]"},
	},
	"AWS::S3::Bucket": {
		{"DeletionPolicy", "RetainExceptOnCreate"}, {"UpdateReplacePolicy", "Retain"},
		{"PublicAccessBlockConfiguration/BlockPublicAcls", "true"}, {"PublicAccessBlockConfiguration/BlockPublicPolicy",
			"true"},
		{"PublicAccessBlockConfiguration/IgnorePublicAcls", "true"},
		{"PublicAccessBlockConfiguration/RestrictPublicBuckets", "true"},
		{"OwnershipControls", "{Rules: [{ObjectOwnership: BucketOwnerEnforced}]}"}, {"VersioningConfiguration",
			"{Status: Enabled}"},
		{"BucketEncryption/ServerSideEncryptionConfiguration",
			"[{BucketKeyEnabled: true, ServerSideEncryptionByDefault: {SSEAlgorithm: aws:kms, KMSMasterKeyID: DataKey.Arn}}]"},
	},
	"AWS::Logs::LogGroup": {{"RetentionInDays", "LogRetentionDays"}, {"KmsKeyId", "DataKey.Arn"}},
	queueType:             {{"MessageRetentionPeriod", "1209600"}, {"KmsMasterKeyId", "DataKey.Arn"}},
	"AWS::ApiGatewayV2::Authorizer": {
		{"AuthorizerType", "JWT"}, {"JwtConfiguration/Issuer", "UserPool.ProviderURL or JwtIssuer"},
		{"JwtConfiguration/Audience", "[UserPoolClient] or {Fn::Split: [,, JwtAudience]}"}, {"IdentitySource", "[$request.header.Authorization]"},
	},
	"AWS::ApiGatewayV2::Integration": {{"PayloadFormatVersion", "2.0"}, {"IntegrationType", "AWS_PROXY"}},
	"AWS::ApiGatewayV2::Stage": {
		{"DefaultRouteSettings/ThrottlingRateLimit", "ApiRateLimit"},
		{"DefaultRouteSettings/ThrottlingBurstLimit", "ApiBurstLimit"}, {"AccessLogSettings/DestinationArn",
			"HttpApiLogs.Arn"},
	},
	"AWS::CloudWatch::Alarm": {{"AlarmActions", "[AlarmTopic]"}, {"OKActions", "[AlarmTopic]"}, {"TreatMissingData", "notBreaching"}},
}

func schema(hash, sort string) string {
	return "[{AttributeName: " + hash + ", KeyType: HASH}, {AttributeName: " + sort + ", KeyType: RANGE}]"
}

func values(p *Project) []string {
	var found []string
	for _, r := range p.Resources() {
		for _, w := range wanted[r.Type] {
			path, want := strings.Split(w[0], "/"), strings.ReplaceAll(w[1], "*", strings.TrimSuffix(r.ID, "Function"))
			switch gauge := r.Properties.Get("Namespace").String()+r.Properties.Get("Statistic").String() == observe.Namespace+"Maximum"; {
			case w[0] != "TreatMissingData":
			case r.ID == "SweepMissing":
				want = "breaching" // no data is what it is about
			case gauge:
				want = "ignore" // a round of the sweep says it; between two, nothing has changed
			}
			got := r.Node.Get(path...)
			if got == nil {
				got = p.Property(r, path...)
			}
			if got.Short() != want {
				if want == "" {
					want = "nothing"
				}
				found = append(found, fmt.Sprintf("%s: %s: want %s, got %q", r.ID, w[0], want, got.Short()))
			}
		}
	}
	return found
}

//go:embed names.json
var namesJSON []byte

// names finds properties of AWS::Serverless resources whose names SAM does not know.
func names(p *Project) []string {
	// Types are the properties of types, by name: "" for a value that is not looked into, "T" for one of type T, "[]T" for
	// a list and "{}T" for a map of them.
	var spec struct{ Types map[string]map[string]string }
	if err := json.Unmarshal(namesJSON, &spec); err != nil {
		return []string{err.Error()}
	}
	// SAM has it since 1.80, of November 2023, and AWS's specification does not list it yet.
	spec.Types[functionType]["LoggingConfig"] = "AWS::Lambda::Function.LoggingConfig"
	spec.Types[functionType]["AutoPublishAliasAllProperties"] = "" // likewise
	var found []string
	var look func(id, kind string, n *Node)
	look = func(id, kind string, n *Node) {
		if name, _ := n.Call(); name != "" || kind == "" {
			return
		}
		if element, ok := strings.CutPrefix(kind, "[]"); ok {
			for _, item := range n.Each() {
				look(id, element, item)
			}
			return
		}
		element, isMap := strings.CutPrefix(kind, "{}")
		for _, e := range n.entries() {
			nested, known := spec.Types[kind][e.Key]
			switch {
			case isMap:
				look(id, element, e.Value)
			case !known:
				found = append(found, fmt.Sprintf("%s: %s: no such property of %s", id, e.Key, kind))
			default:
				look(id, nested, e.Value)
			}
		}
	}
	for _, r := range p.Resources() {
		if strings.HasPrefix(r.Type, "AWS::Serverless::") {
			look(r.ID, r.Type, r.Properties)
		}
	}
	return found
}

// references finds what the validator does not follow: references in Globals, attributes of AWS::Serverless
// resources, and resources that refer to each other in a circle, Globals included. CloudFormation could make none
// of those first.
func references(p *Project) []string {
	var found []string
	globals := p.Template.Get("Globals", "Function")
	for _, target := range globals.targets() {
		id, _, _ := strings.Cut(target, ".")
		known := strings.HasPrefix(id, "AWS::")
		for _, section := range []string{"Parameters", "Resources", "Conditions"} {
			known = known || p.Template.Get(section, id) != nil
		}
		if !known {
			found = append(found, "Globals: "+target+": want a parameter, a resource or a condition")
		}
	}
	attributes := map[string][]string{functionType: {"", "Arn"}, machineType: {"", "Arn", "Name"}}
	for _, target := range p.Template.targets() {
		id, attribute, _ := strings.Cut(target, ".")
		kind := p.Template.Get("Resources", id, "Type").String()
		if known := attributes[kind]; known != nil && !slices.Contains(known, attribute) {
			found = append(found, target+": no such attribute of "+kind)
		}
	}
	done := map[string]bool{}
	var visit func(id string, path []string)
	visit = func(id string, path []string) {
		if i := slices.Index(path, id); i >= 0 {
			found = append(found, "circle: "+strings.Join(append(path[i:], id), " to "))
			return
		}
		if r := p.Template.Get("Resources", id); r != nil && !done[id] {
			all := r.targets()
			if r.Get("Type").String() == functionType {
				all = append(all, globals.targets()...)
				rollback := r.Get("Properties", "DeploymentPreference").targets() // which SAM puts beside the function
				all = slices.DeleteFunc(all, func(target string) bool { return slices.Contains(rollback, target) })
			}
			for _, d := range r.Get("DependsOn").Each() {
				all = append(all, d.String())
			}
			for _, target := range all {
				next, _, _ := strings.Cut(target, ".")
				visit(next, append(slices.Clone(path), id))
			}
			done[id] = true
		}
	}
	for _, r := range p.Resources() {
		visit(r.ID, nil)
	}
	return found
}

// build finds functions that `sam build` cannot make.
func build(p *Project) []string {
	var found []string
	for _, r := range p.Resources(functionType) {
		if want := "{BuildMethod: makefile, BuildInSource: true}"; r.Node.Get("Metadata").Short() != want {
			found = append(found, r.ID+": Metadata: want "+want)
		}
		target := "build-" + r.ID + ":\n\t$(LAMBDA) -o \"$(ARTIFACTS_DIR)/bootstrap\" ./functions/" +
			strings.ToLower(strings.TrimSuffix(r.ID, "Function")) + "\n"
		if !strings.Contains(p.Makefile, "\n"+target) {
			found = append(found, "Makefile: build-"+r.ID+": want "+target)
		}
	}
	return found
}

// timeouts finds callers that give up before the function they call (R7).
func timeouts(p *Project) []string {
	const shortestWait = 60 // seconds; package runtime gives no wait less
	var found []string
	for _, r := range p.Resources(functionType) {
		value, err := p.Resolve(p.Property(r, "Timeout"), p.Deployed(Values{})) // what comes by the gateway has no more (lambdafn.Serve)
		own, failed := strconv.Atoi(fmt.Sprint(value))
		if err != nil || failed != nil || own <= 0 {
			found = append(found, r.ID+": Timeout: want seconds")
		}
		for name, s := range p.Machine.States {
			limit := s.TimeoutSeconds
			if s.TimeoutSecondsPath != "" {
				limit = shortestWait
			}
			if s.Parameters["FunctionName"] == "${"+r.ID+"Arn}" && own >= limit {
				found = append(found, fmt.Sprintf("%s: Timeout: want less than the %d s of state %s", r.ID, limit, name))
			}
		}
		for _, i := range p.Resources("AWS::ApiGatewayV2::Integration") {
			ms, err := strconv.Atoi(i.Properties.Get("TimeoutInMillis").String())
			if i.Properties.Get("IntegrationUri").Short() == r.alias() && (err != nil || own*1000 >= ms) {
				found = append(found, fmt.Sprintf("%s: Timeout: want less than the gateway's %d ms", r.ID, ms))
			}
		}
	}
	return found
}

var variable = regexp.MustCompile(`"(COUNTERSIGN_[A-Z_]*[A-Z])"`)

// variables finds those that functions read and the template does not set, and the other way round.
func variables(p *Project) []string {
	var found []string
	reads, set := map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"lambdafn", "tool", "people"} {
		files, err := filepath.Glob(filepath.Join(root, "internal", dir, "*.go"))
		if err != nil || len(files) == 0 {
			found = append(found, fmt.Sprint(dir, ": no files, ", err))
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				found = append(found, err.Error())
			}
			for _, m := range variable.FindAllStringSubmatch(string(text), -1) {
				if !strings.HasSuffix(f, "_test.go") {
					reads[m[1]] = true
				}
			}
		}
	}
	environments := []*Node{p.Template.Get("Globals", "Function", "Environment", "Variables")}
	for _, r := range p.Resources(functionType) {
		own := r.Properties.Get("Environment", "Variables")
		environments = append(environments, own)
	}
	for _, n := range environments {
		for _, e := range n.entries() {
			set[e.Key] = true
			if strings.HasPrefix(e.Key, "COUNTERSIGN_") && !reads[e.Key] {
				found = append(found, e.Key+": no function reads it")
			}
		}
	}
	for name := range reads {
		if !set[name] {
			found = append(found, name+": the functions read it: want it among their variables")
		}
	}
	return found
}

// holders are the secrets that each function may have. With the keys of links or Slack's signing secret it could decide in
// somebody's name: no function that runs tools or asks models has them.
var holders = map[string][]string{
	"Step": {"OpenAiSecret"}, "Tool": {"KeyRing"},
	"Sweep": {"LinkKeyRing", "SlackTokenSecret"}, "Http": {"KeyRing", "LinkKeyRing", "OidcClientSecret", "SlackSigningSecret", "SlackTokenSecret"},
}

// secretsHeld finds functions whose environments or roles name other secrets than theirs, or hold the value of one.
func secretsHeld(p *Project) []string {
	var found []string
	among := func(all []string) []string {
		var out []string
		for _, target := range all {
			isSecret := p.Template.Get("Resources", target, "Type").String() == "AWS::SecretsManager::Secret"
			if isSecret || strings.HasSuffix(target, "Secret") && p.Template.Get("Parameters", target) != nil {
				out = append(out, target)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	for name, want := range holders {
		environment := p.Template.Get("Resources", name+"Function", "Properties", "Environment")
		if got := among(environment.targets()); !slices.Equal(got, want) {
			found = append(found, fmt.Sprintf("%sFunction: its environment names %v, want %v", name, got, want))
		}
		if got := among(p.Template.Get("Resources", name+"Role", "Properties", "Policies").targets()); !slices.Equal(got, want) {
			found = append(found, fmt.Sprintf("%sRole: it may read %v, want %v", name, got, want))
		}
		for _, e := range environment.Get("Variables").entries() {
			if strings.Contains(e.Value.Short(), "{{resolve:") {
				found = append(found, name+"Function: "+e.Key+": want the name of a secret, which is read at run time")
			}
		}
	}
	return found
}

// partitions finds what works in one partition of AWS alone, and managed policies other than that of functions in a VPC.
func partitions(p *Project) []string {
	var found []string
	p.Template.walk(func(n *Node) {
		if strings.Contains(n.Text, "arn:aws") {
			found = append(found, TemplateFile+": "+n.Text+": want ${AWS::Partition}")
		}
		if strings.Contains(n.Text, "${AWS::Region}.amazonaws.com") {
			found = append(found, TemplateFile+": "+n.Text+": want ${AWS::URLSuffix}")
		}
	})
	if strings.Contains(p.MachineText, "arn:aws") {
		found = append(found, MachineFile+": arn:aws: want ${Partition}")
	}
	const inVPC = "[arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaENIManagementAccess] or AWS::NoValue"
	for _, r := range p.Resources(roleType) {
		want := inVPC
		if p.Template.Get("Resources", strings.TrimSuffix(r.ID, "Role")+"Function") == nil {
			want = ""
		}
		if got := r.Properties.Get("ManagedPolicyArns").Short(); got != want {
			found = append(found, r.ID+": ManagedPolicyArns: want "+want)
		}
	}
	return found
}

// substitutions finds placeholders of the definition that the template does not fill with the function of that name.
func substitutions(p *Project) []string {
	var found []string
	given := p.Template.Get("Resources", "AgentStateMachine", "Properties", "DefinitionSubstitutions")
	for _, m := range placeholder.FindAllStringSubmatch(p.MachineText, -1) {
		want := Resource{ID: strings.TrimSuffix(m[1], "Arn")}.alias()
		if m[1] == "Partition" {
			want = "AWS::Partition"
		}
		if given.Get(m[1]).Short() != want {
			found = append(found, fmt.Sprintf("DefinitionSubstitutions: want %s: want %s", m[1], want))
		}
	}
	return found
}

// principals finds who is let in by the policies of buckets, queues, topics and keys that should not be.
func principals(p *Project) []string {
	const account = "{AWS: arn:${AWS::Partition}:iam::${AWS::AccountId}:root}"
	var found []string
	for _, r := range p.Resources() {
		if r.Type == "AWS::IAM::Policy" { // of a role: who has it is its principal
			continue
		}
		for _, doc := range []string{"PolicyDocument", "KeyPolicy"} {
			for _, s := range r.Properties.Get(doc, "Statement").Each() {
				who := s.Get("Principal")
				// EventBridge tells KMS no source: under a condition on it no event would reach a dead-letter queue
				noSource := doc == "KeyPolicy" && strings.Contains(who.Short(), "events.amazonaws.com")
				conditional := who.Get("Service") != nil && (s.Get("Condition") == nil) == noSource
				if s.Get("Effect").String() == "Allow" && who.Short() != account && !conditional {
					found = append(found, r.ID+": "+who.Short()+": want this account, or a service under a Condition that it fulfils")
				}
			}
		}
		if r.Type == "AWS::Lambda::Permission" && r.Properties.Get("SourceArn") == nil {
			found = append(found, r.ID+": want a SourceArn: a service alone is everybody's")
		}
	}
	return found
}

// aliases finds permissions and URLs of functions that are not those of the alias, or could be made before it.
func aliases(p *Project) []string {
	var found []string
	for _, r := range p.Resources("AWS::Lambda::Permission", "AWS::Lambda::Url") {
		of := cmp.Or(r.Properties.Get("FunctionName").Short(), r.Properties.Get("TargetFunctionArn").Short())
		id, ok := strings.CutSuffix(strings.TrimPrefix(of, "${"), ".Arn}:live")
		if !ok || r.Node.Get("DependsOn").String() != id+"Aliaslive" {
			found = append(found, r.ID+": want a function's alias, and DependsOn with the name that SAM gives it")
		}
	}
	return found
}

// bucket finds buckets that answer without TLS, or keep uploads that were given up or the names of what was deleted.
func bucket(p *Project) []string {
	var found []string
	for _, r := range p.Resources("AWS::S3::Bucket") {
		policies := ""
		for _, policy := range p.Resources("AWS::S3::BucketPolicy") {
			policies += policy.Properties.Short()
		}
		denies := "Effect: Deny, Principal: *, Action: s3:*, Resource: [" + r.ID + ".Arn, ${" + r.ID + ".Arn}/*], " +
			"Condition: {Bool: {aws:SecureTransport: false}}"
		if !strings.Contains(policies, denies) {
			found = append(found, r.ID+": want a bucket policy that denies everything without TLS")
		}
		lifecycle := r.Properties.Get("LifecycleConfiguration").Short()
		if !strings.Contains(lifecycle, "Status: Enabled, AbortIncompleteMultipartUpload: ") {
			found = append(found, r.ID+": LifecycleConfiguration: want an end to uploads that were given up")
		}
		if !strings.Contains(lifecycle, "ExpiredObjectDeleteMarker: true") {
			found = append(found, r.ID+": LifecycleConfiguration: want an end to the markers of what was deleted")
		}
	}
	return found
}

// lossyEvents finds events of rules and schedules that could be lost, and rules that let an event say what is not its own to
// say. The key of a run is the event's id, so that an event that comes twice is one run; the tenant is EventTenant's.
func lossyEvents(p *Project) []string {
	var found []string
	want := func(ok bool, of Resource, what string) {
		if !ok {
			found = append(found, of.ID+": "+what)
		}
	}
	isQueue := func(arn *Node) bool {
		id, ok := strings.CutSuffix(arn.Short(), ".Arn")
		return ok && p.Template.Get("Resources", id, "Type").String() == queueType
	}
	for _, r := range p.Resources("AWS::Events::Rule", "AWS::Scheduler::Schedule") {
		for _, t := range append(r.Properties.Get("Targets").Each(), r.Properties.Get("Target").Each()...) {
			queue, retry := t.Get("DeadLetterConfig", "Arn"), t.Get("RetryPolicy")
			want(isQueue(queue), r, "want a DeadLetterConfig with a queue of the template")
			want(retry.Get("MaximumRetryAttempts") != nil && retry.Get("MaximumEventAgeInSeconds") != nil, r,
				"want a RetryPolicy: how often and how long")
			if r.Type == "AWS::Events::Rule" {
				want(p.fills(r, queue), r, "want a policy of "+strings.TrimSuffix(queue.Short(),
					".Arn")+" that takes what could not be delivered")
			}
			invoked := slices.IndexFunc(p.Resources(functionType),
				func(f Resource) bool { return t.Get("Arn").Short() == f.alias() })
			if invoked >= 0 {
				f := p.Resources(functionType)[invoked]
				failed := f.Properties.Get("EventInvokeConfig", "DestinationConfig", "OnFailure", "Destination")
				want(isQueue(failed), f, "want EventInvokeConfig with a queue for events of "+r.ID+" that fail")
			} else {
				want(t.Get("RoleArn") != nil, r, "want a RoleArn")
			}
			if t.Get("Arn").Short() == "AgentStateMachine" {
				input, pattern := t.Get("InputTransformer"), r.Properties.Get("EventPattern")
				for _, part := range []string{`"key": <id>`, `"tenant": "${EventTenant}"`, `"agent": `} {
					want(strings.Contains(input.Get("InputTemplate").Short(), part), r, "InputTemplate: want "+part)
				}
				want(input.Get("InputPathsMap", "id").Short() == "$.id", r, "InputPathsMap: want id: $.id")
				want(pattern.Get("source") != nil && pattern.Get("detail-type") != nil, r,
					"EventPattern: want source and detail-type")
			}
		}
	}
	return found
}

// fills tells whether a policy of the queue lets a rule put its undelivered events there.
func (p *Project) fills(rule Resource, queue *Node) bool {
	return slices.ContainsFunc(p.Resources("AWS::SQS::QueuePolicy"), func(r Resource) bool {
		return "["+strings.TrimSuffix(queue.Short(), ".Arn")+"]" == r.Properties.Get("Queues").Short() &&
			slices.ContainsFunc(r.Properties.Get("PolicyDocument", "Statement").Each(), func(s *Node) bool {
				return strings.Contains(s.Get("Condition", "ArnEquals", "aws:SourceArn").Short(), rule.ID+".Arn")
			})
	})
}

// openRoutes are those that anybody may call, with what says in place of an authorizer who asks.
var openRoutes = map[string]string{
	"POST /v1/callbacks/{token}": "the token in the path says which call may be answered",
	"ANY /":                      "a page that says how a request is opened, the same for everybody",
	"ANY /a/{link}":              "the link in the path says who opens which request",
	"POST /slack/interactions":   "Slack signs the body",
	"ANY /{proxy+}":              "the console asks for a session; the API has a route of its own",
	"OPTIONS /v1/{proxy+}":       "browsers of other origins ask before they call",
}

// operation is a method of a path of docs/openapi.yaml.
var operation = regexp.MustCompile(`(?m)^    (get|put|post|delete|patch):`)

// api finds routes that anybody may call, methods that pages of other origins may not use, and logs that say too much.
func api(p *Project) []string {
	var found []string
	for _, r := range p.Resources("AWS::ApiGatewayV2::Route") {
		key, got := r.Properties.Get("RouteKey").String(), r.Properties.Get("AuthorizationType").Short()
		by := got + " by " + r.Properties.Get("AuthorizerId").Short()
		if openRoutes[key] == "" && by != "JWT or AWS_IAM by HttpApiAuthorizer or AWS::NoValue" && by != "JWT by HttpApiAuthorizer" {
			found = append(found, key+": "+got+": want an authorizer")
		}
		own := func(o Resource) bool {
			return o.Properties.Get("RouteKey").String() == "ANY /v1/{proxy+}" && o.Node.Get("Condition").String() == r.Node.Get("Condition").String()
		}
		if key == "ANY /{proxy+}" && !slices.ContainsFunc(p.Resources(r.Type), own) {
			found = append(found, key+": NONE: want ANY /v1/{proxy+} with an authorizer beside it")
		}
		if strings.HasPrefix(key, "OPTIONS ") != (r.Node.Get("Condition").String() == "UseCors") {
			found = append(found, key+": Condition: want UseCors for OPTIONS alone")
		}
	}
	spec, err := os.ReadFile(filepath.Join(root, "docs/openapi.yaml"))
	if err != nil {
		return append(found, err.Error())
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Api") {
		cors := r.Properties.Get("CorsConfiguration").Short()
		for _, m := range operation.FindAllStringSubmatch(string(spec), -1) {
			method := strings.ToUpper(m[1])
			if !regexp.MustCompile(`AllowMethods: \[[^\]]*\b` + method + `\b`).MatchString(cors) {
				found = append(found, r.ID+": AllowMethods: want "+method)
			}
		}
		if !strings.Contains(cors, "x-amz-date, x-amz-security-token") {
			found = append(found, r.ID+": AllowHeaders: want those of a signature, too")
		}
	}
	for _, r := range p.Resources("AWS::ApiGatewayV2::Stage") {
		for _, secret := range []string{"path", "routeKey", "authorizer.claims", "identity", "authorizer.principalId"} {
			if strings.Contains(r.Properties.Get("AccessLogSettings", "Format").String(), "$context."+secret) {
				found = append(found, r.ID+": Format: $context."+secret+": who calls, and links, stay out of this log")
			}
		}
	}
	return found
}

// alarms finds measures nobody is told of, and alarms on what nobody emits (R18).
func alarms(p *Project) []string {
	want, got := map[string]bool{}, map[string]bool{}
	add := func(namespace, dimensions string, names ...string) {
		for _, name := range names {
			want[namespace+" "+name+" of "+dimensions] = true
		}
	}
	add(observe.Namespace, observe.Dimension+"=AgentStateMachine.Name", observe.AlarmMetrics()...)
	add("AWS/States", "StateMachineArn=AgentStateMachine", "ExecutionsFailed", "ExecutionsTimedOut")
	for _, f := range p.Resources(functionType) {
		add("AWS/Lambda", "FunctionName="+f.ID, "Errors", "Throttles")
	}
	add(observe.Namespace, observe.Dimension+"=AgentStateMachine.Name", observe.SweepFailures+" samples")
	for _, called := range []string{"step", "tool", "approve"} { // by the state machine, which tries again
		add(observe.Namespace, observe.DimFunction+"="+called+","+observe.Dimension+"=AgentStateMachine.Name", observe.Throttled)
	}
	for _, q := range p.Resources(queueType) {
		add("AWS/SQS", "QueueName="+q.ID+".QueueName", "ApproximateNumberOfMessagesVisible")
	}
	for _, of := range []string{"TableName=RunsTable or TableName", "TableName=RunsTable or TableName,GlobalSecondaryIndexName=lists"} {
		add("AWS/DynamoDB", of, "ReadThrottleEvents", "WriteThrottleEvents")
	}
	for _, op := range []string{"GetItem", "Query", "PutItem", "UpdateItem", "TransactWriteItems"} {
		add("AWS/DynamoDB", "TableName=RunsTable or TableName,Operation="+op, "SystemErrors")
	}
	add("AWS/ApiGateway", "ApiId=HttpApi", "5xx")
	for _, r := range p.Resources("AWS::CloudWatch::Alarm") {
		watched := []*Node{r.Properties}
		for _, m := range r.Properties.Get("Metrics").Each() {
			watched = append(watched, m.Get("MetricStat", "Metric"))
		}
		for _, n := range watched {
			var dimensions []string
			for _, d := range n.Get("Dimensions").Each() {
				dimensions = append(dimensions, d.Get("Name").String()+"="+d.Get("Value").Short())
			}
			if name := n.Get("MetricName").String(); name != "" {
				if n.Get("Statistic").String() == "SampleCount" {
					name += " samples"
				}
				got[n.Get("Namespace").String()+" "+name+" of "+strings.Join(dimensions, ",")] = true
			}
		}
	}
	var found []string
	for _, m := range slices.Sorted(maps.Keys(want)) {
		if !got[m] {
			found = append(found, "want an alarm on "+m)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(got)) {
		if !want[m] {
			found = append(found, "nobody emits "+m)
		}
	}
	return found
}
