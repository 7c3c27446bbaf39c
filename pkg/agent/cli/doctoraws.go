package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	sestypes "github.com/aws/aws-sdk-go-v2/service/sesv2/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/web"
)

// deployment is a stack, by the configuration of its functions.
type deployment struct {
	p             *program
	cfg           aws.Config
	stack, tenant string
	functions     map[string]lambdatypes.FunctionConfiguration // by name in template.yaml
	skew          time.Duration                                // of this machine's clock
	lambda        *lambda.Client
}

// deployedFunctions are the names of the functions in template.yaml.
var deployedFunctions = []string{"StepFunction", "ToolFunction", "ApproveFunction", "HttpFunction", "SweepFunction"}

// samDeploy deploys. Without the build SAM would upload sources in place of the bootstraps.
const samDeploy = "sam build && sam deploy"

func (p *program) findDeployment(ctx context.Context, stack, tenant string) (*deployment, error) {
	cfg, err := p.aws.Config()
	if err != nil {
		return nil, usageErrorf("--stack: %v", err)
	}
	if cfg.Region == "" {
		return nil, usageErrorf("--stack: want a region: set AWS_REGION or AWS_PROFILE")
	}
	d := &deployment{
		p: p, cfg: cfg, stack: stack, tenant: tenant, functions: map[string]lambdatypes.FunctionConfiguration{},
		lambda: lambda.NewFromConfig(cfg),
	}
	pages := lambda.NewListFunctionsPaginator(d.lambda, &lambda.ListFunctionsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the functions of stack %s in %s: %w", stack, cfg.Region, err)
		}
		d.skew, _ = awsmiddleware.GetAttemptSkew(page.ResultMetadata)
		for _, f := range page.Functions {
			for _, name := range deployedFunctions { // their own names are cut where the stack's is long
				group := "/aws/lambda/" + stack + "-" + strings.ToLower(strings.TrimSuffix(name, "Function"))
				if f.LoggingConfig != nil && aws.ToString(f.LoggingConfig.LogGroup) == group {
					d.functions[name] = f
				}
			}
		}
	}
	if len(d.functions) == 0 {
		return nil, usageErrorf("--stack: there are no functions of stack %s in %s: %s, or another AWS_REGION",
			line(stack), cfg.Region, samDeploy)
	}
	return d, nil
}

// env is a variable of a function; "" if there is none.
func (d *deployment) env(function, name string) string {
	if e := d.functions[function].Environment; e != nil {
		return e.Variables[name]
	}
	return ""
}

func (d *deployment) checks(agents web.Agents) []check {
	checks := []check{
		{"functions", d.functionFindings}, {"versions", d.versionFindings}, {"clock", d.clockFindings},
		{"quotas", d.quotaFindings}, {"table", d.tableFindings},
		{"secrets", func(ctx context.Context) ([]finding, error) { return d.secretFindings(ctx, agents) }},
		{"people", d.peopleFindings}, {"operators", d.operatorFindings}, {"mail", d.mailFindings},
		{"slack", d.slackFindings}, {"alarms", d.alarmFindings},
	}
	leftOut := map[string]string{"openai": "the deployment's key is not read here: start a run"}
	checks = append(checks, d.p.modelChecks(agents, leftOut)...)
	return append(checks, check{"the rest", func(context.Context) ([]finding, error) {
		return nil, errors.New("IAM (models were asked as you, not as the step function), quotas of Bedrock, " +
			"routes of a VPC, the request URL of the Slack app, alarms that are off")
	}})
}

func (d *deployment) functionFindings(context.Context) (found []finding, err error) {
	for _, name := range deployedFunctions {
		f, there := d.functions[name]
		switch {
		case !there:
			found = append(found, finding{name + " is not there", samDeploy})
		case f.State == lambdatypes.StateFailed, f.LastUpdateStatus == lambdatypes.LastUpdateStatusFailed:
			found = append(found, finding{fmt.Sprintf("%s is not ready: %s%s", name, aws.ToString(f.StateReason),
				aws.ToString(f.LastUpdateStatusReason)), samDeploy + ", once the reason is gone"})
		}
	}
	if d.env("SweepFunction", lambdafn.EnvMetrics) == "off" {
		found = append(found, finding{"metrics are off: alarms on runs and waits are silent",
			samDeploy + " --parameter-overrides Metrics=on"})
	}
	return found, nil
}

// versionFindings compare this program with what the functions say that they were built from.
func (d *deployment) versionFindings(ctx context.Context) (found []finding, err error) {
	own := lambdafn.ReadBuild()
	for _, name := range deployedFunctions {
		f, there := d.functions[name]
		if !there {
			continue
		}
		out, err := d.lambda.Invoke(ctx, &lambda.InvokeInput{
			FunctionName: f.FunctionName, Qualifier: aws.String("live"), // the alias, by which all of them are called
			Payload: []byte(lambdafn.VersionRequest),
		})
		if err != nil {
			return found, fmt.Errorf("ask %s for its version: %w", name, err)
		}
		deployed, err := lambdafn.ParseBuild(out.Payload)
		if err != nil || out.FunctionError != nil {
			return found, fmt.Errorf("%s does not say what it was built from", name)
		}
		if deployed.Revision != own.Revision || deployed.Version != own.Version {
			found = append(found, finding{fmt.Sprintf("%s runs %s, and this program is %s", name, deployed, own),
				samDeploy + ", or use the program of that revision"})
		}
	}
	return found, nil
}

const maxSkew = time.Minute // of a clock; AWS refuses signatures that are more than five minutes old

func (d *deployment) clockFindings(context.Context) ([]finding, error) {
	if d.skew.Abs() <= maxSkew {
		return nil, nil
	}
	return []finding{{fmt.Sprintf("this machine's clock differs from AWS's by %s", d.skew.Round(time.Second)),
		"timedatectl set-ntp true"}}, nil
}

const leastConcurrency = 100 // what an agent or two take under load; a new account has 10

func (d *deployment) quotaFindings(ctx context.Context) (found []finding, err error) {
	out, err := d.lambda.GetAccountSettings(ctx, &lambda.GetAccountSettingsInput{})
	if err != nil {
		return nil, err
	}
	if out.AccountLimit == nil || out.AccountLimit.ConcurrentExecutions >= leastConcurrency {
		return nil, nil
	}
	return []finding{{
		fmt.Sprintf("the account runs at most %d functions at once", out.AccountLimit.ConcurrentExecutions),
		"aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 " +
			"--desired-value 1000",
	}}, nil
}

func (d *deployment) tableFindings(ctx context.Context) (found []finding, err error) {
	client, name := dynamodb.NewFromConfig(d.cfg), d.env("HttpFunction", lambdafn.EnvTable)
	wrong := func(problem, command string) {
		found = append(found, finding{problem, "aws dynamodb " + command + " --table-name " + name})
	}
	about, err := client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
	if err != nil {
		return nil, err
	}
	if !aws.ToBool(about.Table.DeletionProtectionEnabled) {
		wrong("the table can be deleted", "update-table --deletion-protection-enabled")
	}
	ttl, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &name})
	if err != nil {
		return found, err
	}
	if t := ttl.TimeToLiveDescription; t == nil || !strings.HasPrefix(string(t.TimeToLiveStatus), "ENABL") {
		wrong("the table keeps expired links: its time to live is off",
			"update-time-to-live --time-to-live-specification Enabled=true,AttributeName=TTL")
	}
	out, err := client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &name})
	if err != nil {
		return found, err
	}
	if b := out.ContinuousBackupsDescription; b == nil || b.PointInTimeRecoveryDescription == nil ||
		b.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus != dynamotypes.PointInTimeRecoveryStatusEnabled {
		wrong("the table cannot be restored to a point in time",
			"update-continuous-backups --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true")
	}
	return found, nil
}

// vault reads secrets as a function does.
func (d *deployment) vault(function string) *lambdafn.Vault {
	return lambdafn.NewVault(d.cfg, d.env(function, lambdafn.EnvSecretsPrefix), d.p.clock)
}

// secretFindings look for the secrets that functions name, and those of tools.
func (d *deployment) secretFindings(ctx context.Context, agents web.Agents) (found []finding, err error) {
	client := secretsmanager.NewFromConfig(d.cfg)
	for _, of := range []struct{ function, variable string }{
		{"HttpFunction", lambdafn.EnvLinkKeyRing}, {"HttpFunction", lambdafn.EnvKeyRing},
		{"HttpFunction", lambdafn.EnvOIDCSecret}, {"HttpFunction", lambdafn.EnvSlackToken},
		{"HttpFunction", lambdafn.EnvSlackSecret}, {"StepFunction", lambdafn.EnvOpenAI},
	} {
		name := d.env(of.function, of.variable)
		if name == "" {
			continue
		}
		out, err := client.DescribeSecret(ctx, &secretsmanager.DescribeSecretInput{SecretId: &name})
		var code interface{ ErrorCode() string }
		switch {
		case errors.As(err, &code) && code.ErrorCode() == "ResourceNotFoundException",
			err == nil && (out.DeletedDate != nil || len(out.VersionIdsToStages) == 0):
			found = append(found, finding{fmt.Sprintf("%s of %s names the secret %s, which is not there or empty",
				of.variable, of.function, name), "aws secretsmanager create-secret --secret-string … --name " + name})
		case err != nil:
			return found, err
		}
	}
	missing, err := missingSecrets(ctx, d.vault("ToolFunction"), d.tenant, agents, func(name string) string {
		return fmt.Sprintf("aws secretsmanager create-secret --secret-string … --name %s%s/%s",
			d.env("ToolFunction", lambdafn.EnvSecretsPrefix), d.tenant, name)
	})
	return append(found, missing...), err
}

func (d *deployment) peopleFindings(ctx context.Context) ([]finding, error) {
	table, err := lambdafn.StoredTable(d.cfg, func(name string) string { return d.env("HttpFunction", name) })
	if err != nil {
		return nil, err
	}
	n, err := people.Count(ctx, table, d.tenant)
	told := d.env("SweepFunction", lambdafn.EnvMailFrom) + d.env("SweepFunction", lambdafn.EnvSlackToken)
	if err != nil || n > 0 || told == "" {
		return nil, err
	}
	return []finding{{
		"nobody of tenant " + d.tenant + " can be told of requests: no people are imported",
		"COUNTERSIGN_TABLE=" + d.env("HttpFunction", lambdafn.EnvTable) + " countersign people import people.json",
	}}, nil
}

// operatorFindings report a deployment in which nobody can decide.
func (d *deployment) operatorFindings(context.Context) ([]finding, error) {
	const deploy = samDeploy + " --parameter-overrides "
	issuer, iam := d.env("HttpFunction", lambdafn.EnvOIDCIssuer), d.env("HttpFunction", lambdafn.EnvIAMTenant)
	switch {
	case issuer != "":
		return nil, nil
	case iam == "":
		return []finding{{"nobody may call the API: there is neither an issuer of tokens nor a tenant of IAM's callers",
			deploy + "JwtIssuer=… JwtAudience=…, or IamTenant=default"}}, nil
	case d.env("HttpFunction", lambdafn.EnvOperators) == "":
		return []finding{{"nobody is in group:operators, unless a role of yours is named operators",
			deploy + "OperatorsPrincipal=arn:aws:iam::ACCOUNT:root"}}, nil
	}
	return nil, nil
}

func (d *deployment) mailFindings(ctx context.Context) (found []finding, err error) {
	from := d.env("SweepFunction", lambdafn.EnvMailFrom)
	if from == "" {
		return nil, nil
	}
	client := sesv2.NewFromConfig(d.cfg)
	account, err := client.GetAccount(ctx, &sesv2.GetAccountInput{})
	if err != nil {
		return nil, err
	}
	if !account.ProductionAccessEnabled {
		found = append(found, finding{"SES is in its sandbox: it sends to verified addresses alone",
			"aws sesv2 put-account-details --production-access-enabled --mail-type TRANSACTIONAL --website-url …"})
	}
	if !account.SendingEnabled {
		found = append(found, finding{"SES has stopped sending for this account",
			"aws sesv2 put-account-sending-attributes --sending-enabled, once AWS's case is settled"})
	}
	_, domain, _ := strings.Cut(from, "@")
	for _, identity := range []string{from, domain} {
		out, err := client.GetEmailIdentity(ctx, &sesv2.GetEmailIdentityInput{EmailIdentity: &identity})
		var none *sestypes.NotFoundException
		if err == nil && out.VerifiedForSendingStatus {
			return found, nil
		}
		if err != nil && !errors.As(err, &none) {
			return found, err
		}
	}
	return append(found, finding{"SES has not verified " + from + " or its domain",
		"aws sesv2 create-email-identity --email-identity " + domain}), nil
}

func (d *deployment) slackFindings(ctx context.Context) ([]finding, error) {
	name := d.env("SweepFunction", lambdafn.EnvSlackToken)
	if name == "" {
		return nil, nil
	}
	token, err := d.vault("SweepFunction").Value(ctx, name)
	if err != nil {
		return nil, err
	}
	found, err := d.p.slackFindings(ctx, token)
	if d.env("HttpFunction", lambdafn.EnvSlackSecret) == "" {
		found = append(found, finding{"clicks in Slack are refused: there is no signing secret",
			samDeploy + " --parameter-overrides SlackSigningSecret=…"})
	}
	return found, err
}

// alarmFindings report alarms that nobody receives.
func (d *deployment) alarmFindings(ctx context.Context) ([]finding, error) {
	client := sns.NewFromConfig(d.cfg)
	pages := sns.NewListTopicsPaginator(client, &sns.ListTopicsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Topics {
			arn := aws.ToString(t.TopicArn)
			if !strings.Contains(arn, ":"+d.stack+"-AlarmTopic-") {
				continue
			}
			out, err := client.ListSubscriptionsByTopic(ctx, &sns.ListSubscriptionsByTopicInput{TopicArn: &arn})
			if err != nil {
				return nil, err
			}
			for _, s := range out.Subscriptions {
				if strings.HasPrefix(aws.ToString(s.SubscriptionArn), "arn:") { // others wait for a confirmation
					return nil, nil
				}
			}
			return []finding{{
				"nobody hears the alarms: their topic has no confirmed subscription",
				"aws sns subscribe --protocol email --notification-endpoint you@example.com --topic-arn " + arn,
			}}, nil
		}
	}
	return []finding{{"the topic of the alarms is not there", samDeploy}}, nil
}
