// Package awssdk is how this program uses the AWS SDK: one configuration and one kind of error for all clients, and
// the clients of Step Functions and EventBridge behind the ports of package runtime.
package awssdk
