// Package awsfake stands in for services of AWS where no emulator is to be had: an HTTP API of API Gateway in front of
// a function (payload format 2.0, a JWT authorizer), an EventBridge bus with its rules, patterns and input
// transformers, at least once, Lambda's Invoke, and mails of SES. What they do not know of their real counterparts they
// refuse by name.
package awsfake
