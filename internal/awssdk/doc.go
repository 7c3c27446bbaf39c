// Package awssdk is how this program uses the AWS SDK: one configuration and one kind of error for all clients, and
// the clients of Step Functions, EventBridge and Secrets Manager behind the ports of packages runtime and tool.
package awssdk
