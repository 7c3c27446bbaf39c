package tools

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// Hurried is a NewFunctions client that sends again without a pause to speak of.
func Hurried(cfg aws.Config) *Functions {
	c := NewFunctions(cfg)
	c.pause = retry.NewExponentialJitterBackoff(time.Microsecond)
	return c
}
