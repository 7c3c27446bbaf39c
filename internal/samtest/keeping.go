package samtest

import (
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
)

// want says which of the properties do not have the value that is wanted, in short.
func (r Resource) want(values ...string) []Problem {
	var found []Problem
	for i := 0; i < len(values); i += 2 {
		path, value := values[i], values[i+1]
		if n := r.Properties.Get(strings.Split(path, "/")...); n.Short() != value {
			found = append(found, r.problem(n, "%s: want %s, got %q", path, value, n.Short()))
		}
	}
	return found
}

// kept says where what is kept could be lost or read by others: table, bucket and key.
func kept(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key") {
		for _, policy := range []string{"DeletionPolicy", "UpdateReplacePolicy"} {
			if r.Node.Get(policy).String() != "Retain" {
				found = append(found, r.problem(r.Node.Get(policy), "%s: want Retain", policy))
			}
		}
	}
	for _, r := range p.Resources("AWS::KMS::Key") {
		found = append(found, r.want("EnableKeyRotation", "true")...)
	}
	for _, r := range p.Resources("AWS::DynamoDB::Table") {
		found = append(found, r.want(
			"PointInTimeRecoverySpecification/PointInTimeRecoveryEnabled", "true", "DeletionProtectionEnabled", "DeletionProtection",
			"SSESpecification", "{SSEEnabled: true, SSEType: KMS, KMSMasterKeyId: DataKey.Arn}", "BillingMode", "PAY_PER_REQUEST",
			"KeySchema", schema(store.NamePK, store.NameSK),
			"TimeToLiveSpecification", "{AttributeName: TTL, Enabled: true}",
			"GlobalSecondaryIndexes", "[{IndexName: "+dynamo.IndexName+", KeySchema: "+schema(store.NameIndex, store.NameIndexSort)+
				", Projection: {ProjectionType: ALL}}]",
		)...)
	}
	return found
}

func schema(hash, sort string) string {
	return "[{AttributeName: " + hash + ", KeyType: HASH}, {AttributeName: " + sort + ", KeyType: RANGE}]"
}

// bucket says where a bucket is open, in the clear or full of leftovers.
func bucket(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::S3::Bucket") {
		found = append(found, r.want(
			"PublicAccessBlockConfiguration/BlockPublicAcls", "true", "PublicAccessBlockConfiguration/BlockPublicPolicy", "true",
			"PublicAccessBlockConfiguration/IgnorePublicAcls", "true", "PublicAccessBlockConfiguration/RestrictPublicBuckets", "true",
			"OwnershipControls", "{Rules: [{ObjectOwnership: BucketOwnerEnforced}]}", "VersioningConfiguration", "{Status: Enabled}",
			"BucketEncryption/ServerSideEncryptionConfiguration",
			"[{BucketKeyEnabled: true, ServerSideEncryptionByDefault: {SSEAlgorithm: aws:kms, KMSMasterKeyID: DataKey.Arn}}]",
		)...)
		aborts := slices.ContainsFunc(r.Properties.Get("LifecycleConfiguration", "Rules").Each(), func(n *Node) bool {
			return n.Get("Status").String() == "Enabled" && n.Get("AbortIncompleteMultipartUpload") != nil
		})
		if !aborts {
			found = append(found, r.problem(nil, "LifecycleConfiguration: want an end to uploads that were given up"))
		}
		tls := slices.ContainsFunc(p.Resources("AWS::S3::BucketPolicy"), func(policy Resource) bool {
			return policy.Properties.Get("Bucket").Short() == r.ID && slices.ContainsFunc(
				policy.Properties.Get("PolicyDocument", "Statement").Each(), deniesPlainHTTP(r.ID))
		})
		if !tls {
			found = append(found, r.problem(nil, "want a bucket policy that denies everything without TLS"))
		}
	}
	return found
}

func deniesPlainHTTP(bucket string) func(*Node) bool {
	return func(s *Node) bool {
		return s.Get("Effect").String() == "Deny" && s.Get("Principal").Short() == "*" && s.Get("Action").Short() == "s3:*" &&
			s.Get("Resource").Short() == "["+bucket+".Arn, ${"+bucket+".Arn}/*]" &&
			s.Get("Condition").Short() == "{Bool: {aws:SecureTransport: false}}"
	}
}

// logs says which logs are kept for ever or in the clear, and whether content could get into them (R17).
func logs(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::Logs::LogGroup") {
		found = append(found, r.want("RetentionInDays", "LogRetentionDays", "KmsKeyId", "DataKey.Arn")...)
	}
	for _, r := range p.Resources(machineType) {
		found = append(found, r.want(
			"Logging/IncludeExecutionData", "false", "Logging/Level", "ALL",
			"Logging/Destinations", "[{CloudWatchLogsLogGroup: {LogGroupArn: StateMachineLogs.Arn}}]", "Tracing/Enabled", "true",
		)...)
	}
	return found
}

// eventTargets says which events could be lost: of rules, schedules, and functions that are invoked without anybody waiting.
func eventTargets(p *Project) []Problem {
	var found []Problem
	for _, r := range p.Resources("AWS::Events::Rule", "AWS::Scheduler::Schedule") {
		targets := r.Properties.Get("Targets").Each()
		targets = append(targets, r.Properties.Get("Target").Each()...)
		for _, t := range targets {
			if !p.queue(t.Get("DeadLetterConfig", "Arn")) {
				found = append(found, r.problem(t, "DeadLetterConfig: want a queue of the template"))
			}
			if t.Get("RetryPolicy", "MaximumRetryAttempts") == nil || t.Get("RetryPolicy", "MaximumEventAgeInSeconds") == nil {
				found = append(found, r.problem(t, "RetryPolicy: want how often and how long"))
			}
			found = append(found, p.handled(r, t)...)
		}
	}
	for _, r := range p.Resources("AWS::SQS::Queue") {
		found = append(found, r.want("MessageRetentionPeriod", "1209600", "KmsMasterKeyId", "DataKey.Arn")...)
	}
	return found
}

func (p *Project) queue(arn *Node) bool {
	return slices.ContainsFunc(p.Resources("AWS::SQS::Queue"), func(q Resource) bool { return arn.Short() == q.ID+".Arn" })
}

// handled says whether a function that a target invokes keeps the events it fails to handle.
func (p *Project) handled(of Resource, target *Node) []Problem {
	for _, f := range p.Resources(functionType) {
		if target.Get("Arn").Short() != f.ID+".Arn" {
			continue
		}
		if !p.queue(f.Properties.Get("EventInvokeConfig", "DestinationConfig", "OnFailure", "Destination")) {
			return []Problem{f.problem(f.Properties.Get("EventInvokeConfig"), "EventInvokeConfig: want a queue for events of %s that fail", of.ID)}
		}
		return nil
	}
	if target.Get("RoleArn") == nil {
		return []Problem{of.problem(target, "RoleArn: want a role that may start executions")}
	}
	return nil
}
