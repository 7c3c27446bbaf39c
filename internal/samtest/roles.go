package samtest

import (
	"fmt"
	"slices"
	"strings"
)

const roleType = "AWS::IAM::Role"

// Statement is one permission of a role.
type Statement struct {
	Role     Resource
	Node     *Node
	Actions  []string
	Resource []string // in short
}

// Statements are the permissions of the template's roles.
func (p *Project) Statements() []Statement {
	var out []Statement
	for _, r := range p.Resources(roleType) {
		for _, policy := range r.Properties.Get("Policies").Each() {
			for _, s := range policy.Get("PolicyDocument", "Statement").Each() {
				out = append(out, statement(r, s))
			}
		}
	}
	return out
}

func statement(r Resource, n *Node) Statement {
	s := Statement{Role: r, Node: n}
	for _, a := range n.Get("Action").Each() {
		s.Actions = append(s.Actions, a.String())
	}
	for _, res := range n.Get("Resource").Each() {
		s.Resource = append(s.Resource, res.Short())
	}
	return s
}

// Grants are what a role allows, as "action on resource", sorted.
func (p *Project) Grants(role string) []string {
	var out []string
	for _, s := range p.Statements() {
		for _, a := range s.Actions {
			for _, res := range s.Resource {
				if s.Role.ID == role {
					out = append(out, a+" on "+res+condition(s.Node.Get("Condition")))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func condition(n *Node) string {
	if n == nil {
		return ""
	}
	return " if " + n.Short()
}

// roles says which functions share a role or lack one of their own, which permissions come from outside the template, and which roles
// may start executions or decide for a run that should not.
func roles(p *Project) []Problem {
	var found []Problem
	owner := map[string]string{}
	for _, r := range p.Resources(functionType, machineType) {
		role := strings.TrimSuffix(strings.TrimPrefix(r.ID, "Agent"), "Function") + "Role.Arn"
		if got := r.Properties.Get("Role"); got.Short() != role {
			found = append(found, r.problem(got, "Role: want %s, its own, got %q", role, got.Short()))
		}
		for _, key := range []string{"Policies", "Events", "Connectors"} {
			if n := r.Properties.Get(key); n != nil {
				found = append(found, r.problem(n, "%s: SAM would add permissions that stand nowhere", key))
			}
		}
		if first := owner[r.Properties.Get("Role").Short()]; first != "" {
			found = append(found, r.problem(nil, "Role: %s has it too", first))
		}
		owner[r.Properties.Get("Role").Short()] = r.ID
	}
	for _, r := range p.Resources(roleType) {
		if n := r.Properties.Get("ManagedPolicyArns"); n != nil {
			found = append(found, r.problem(n, "ManagedPolicyArns: want every permission in the template"))
		}
	}
	return slices.Concat(found, p.starters(), p.claims())
}

// claims says where the function that runs tools may not check a grant in the transaction of a claim.
func (p *Project) claims() []Problem {
	const action, role = "dynamodb:ConditionCheckItem", "ToolRole"
	for _, s := range p.Statements() {
		if s.Role.ID == role && slices.Contains(s.Actions, action) && slices.Contains(s.Resource, "RunsTable.Arn") {
			return nil
		}
	}
	for _, r := range p.Resources(roleType) {
		if r.ID == role {
			return []Problem{r.problem(nil, "%s on RunsTable.Arn: a claim under a grant of its tool checks it", action)}
		}
	}
	return nil
}

// mayStart are the roles that start runs, with the reason.
var mayStart = map[string]string{
	"HttpRole":         "POST /v1/runs",
	"SweepRole":        "takes over runs whose execution has ended",
	"StateMachineRole": "a long run goes on in a new execution",
	"EventsRole":       "events start runs",
	"ToolRole":         "a call that another agent carries out is a run",
	"StepRole":         "a run's end calls off the runs of its calls, and they are cleaned up after",
}

func (p *Project) starters() []Problem {
	var found []Problem
	for _, s := range p.Statements() {
		if s.Node.Get("Effect").String() != "Allow" {
			found = append(found, s.Role.problem(s.Node, "Effect: want Allow: what is not allowed is denied"))
		}
		for _, a := range s.Actions {
			if (a == "states:StartExecution" || a == "states:*" || a == "*") && mayStart[s.Role.ID] == "" {
				found = append(found, s.Role.problem(s.Node, "%s: the role starts no executions", a))
			}
		}
	}
	return found
}

// documented are the wildcards that stay, with the reason. The key is "action on resource" in short.
var documented = map[string]string{
	"lambda:InvokeFunction on arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${ToolFunctionPrefix}*": "the functions that tools may be",

	"xray:PutTraceSegments on *":                             "X-Ray has no resources",
	"xray:PutTelemetryRecords on *":                          "X-Ray has no resources",
	"xray:GetSamplingRules on *":                             "X-Ray has no resources",
	"xray:GetSamplingTargets on *":                           "X-Ray has no resources",
	"logs:CreateLogDelivery on *":                            "log deliveries have no resources",
	"logs:GetLogDelivery on *":                               "log deliveries have no resources",
	"logs:UpdateLogDelivery on *":                            "log deliveries have no resources",
	"logs:DeleteLogDelivery on *":                            "log deliveries have no resources",
	"logs:ListLogDeliveries on *":                            "log deliveries have no resources",
	"logs:PutResourcePolicy on *":                            "log deliveries have no resources",
	"logs:DescribeResourcePolicies on *":                     "log deliveries have no resources",
	"logs:DescribeLogGroups on *":                            "log deliveries have no resources",
	"s3:GetObject on ${BlobsBucket.Arn}/T/*":                 "every blob of every tenant: the tenant is checked by the code",
	"s3:PutObject on ${BlobsBucket.Arn}/T/*":                 "every blob of every tenant: the tenant is checked by the code",
	"secretsmanager:GetSecretValue on " + toolSecrets:        "every secret of every tenant of this stack: the tenant is checked by the code",
	"secretsmanager:GetSecretValue on " + modelSecrets:       "the keys of every tenant's models: the tenant is checked by the code",
	"states:StopExecution on " + executions:                  "every execution of this state machine",
	"states:DescribeExecution on " + executions:              "every execution of this state machine",
	"bedrock:InvokeModel on " + foundation:                   "models of every region: a profile asks those of others; BedrockModels narrows it",
	"bedrock:InvokeModelWithResponseStream on " + foundation: "models of every region: a profile asks those of others; BedrockModels narrows it",
	"bedrock:InvokeModel on " + profiles:                     "a profile's id begins with its region; BedrockModels narrows it",
	"bedrock:InvokeModelWithResponseStream on " + profiles:   "a profile's id begins with its region; BedrockModels narrows it",
	"bedrock:CountTokens on " + foundation:                   "models of every region: a profile asks those of others; BedrockModels narrows it",
	"bedrock:CountTokens on " + profiles:                     "a profile's id begins with its region; BedrockModels narrows it",
}

const (
	toolSecrets  = "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${AWS::StackName}/tools/*"
	modelSecrets = "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${AWS::StackName}/models/*"
	executions   = "arn:${AWS::Partition}:states:${AWS::Region}:${AWS::AccountId}:execution:${AWS::StackName}-agent:*"
	foundation   = "arn:${AWS::Partition}:bedrock:*::foundation-model/${BedrockModels}"
	profiles     = "arn:${AWS::Partition}:bedrock:${AWS::Region}:${AWS::AccountId}:inference-profile/*${BedrockModels}"
)

// wildcards says which actions and resources hold a star that no list documents, and which permissions are by exclusion.
func wildcards(p *Project) []Problem {
	var found []Problem
	for _, s := range p.Statements() {
		for _, key := range []string{"NotAction", "NotResource", "NotPrincipal"} {
			if n := s.Node.Get(key); n != nil {
				found = append(found, s.Role.problem(n, "%s: want what is allowed, by name", key))
			}
		}
		for _, a := range s.Actions {
			for _, res := range s.Resource {
				if strings.Contains(a, "*") || strings.Contains(res, "*") && documented[a+" on "+res] == "" {
					found = append(found, s.Role.problem(s.Node, "%s on %s: a wildcard that no list documents", a, res))
				}
			}
		}
	}
	return found
}

// principals says who is let in by the policies of buckets, queues, topics and keys, and by roles, that should not be.
func principals(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources() {
		for _, doc := range []string{"PolicyDocument", "KeyPolicy", "AssumeRolePolicyDocument"} {
			for _, s := range r.Properties.Get(doc, "Statement").Each() {
				if text := outsider(s); text != "" {
					found = append(found, r.problem(s, "%s: %s", doc, text))
				}
			}
		}
		if r.Type == "AWS::Lambda::Permission" && r.Properties.Get("SourceArn") == nil {
			found = append(found, r.problem(nil, "SourceArn: want who may invoke: a service alone is everybody's"))
		}
	}
	return found
}

// account is the principal that stands for the policies of the account itself.
const account = "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"

func outsider(s *Node) string {
	if s.Get("Effect").String() != "Allow" {
		return ""
	}
	who := s.Get("Principal")
	if who.Short() == "*" || who.Get("AWS").Short() == "*" {
		return "Principal *: anybody"
	}
	for _, n := range who.Get("AWS").Each() {
		if n.Short() != account {
			return fmt.Sprintf("Principal %s: want this account or a service", n.Short())
		}
	}
	service := who.Get("Service")
	if service != nil && service.Short() != "lambda.amazonaws.com" && s.Get("Condition") == nil {
		return fmt.Sprintf("Principal %s: want a Condition that says for whom the service acts", service.Short())
	}
	return ""
}
