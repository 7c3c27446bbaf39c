package lambdatool

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
)

// Hurry has c send again without a pause to speak of.
func Hurry(c *Client) {
	c.delays = retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Microsecond })
}
