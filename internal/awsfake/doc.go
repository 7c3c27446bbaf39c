// Package awsfake stands in for the two services that start runs on AWS, where no emulator is to be had: an HTTP API of API Gateway in
// front of a function (payload format 2.0, JWT and IAM authorizers), and an EventBridge bus with its rules, patterns and input
// transformers, at least once. What they do not know of their real counterparts they refuse by name.
package awsfake
