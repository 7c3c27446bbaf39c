package lambdatool

import (
	"fmt"
	"io"
	"net/http"

	"github.com/countersign/countersign/internal/aws/awshttp"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// refusal is Lambda's name for why it did not enter a function. What else it says is not kept: it may repeat the payload.
type refusal struct {
	code   string
	passes bool // it may be entered later
}

func (r *refusal) Error() string { return "refused: " + r.code }

// later are Lambda's names for what keeps it from entering a function now: throttling, and a function or its network that are not ready.
// Beside them stand those of signatures that a moment makes good.
var later = map[string]bool{
	"TooManyRequestsException": true, "EC2ThrottledException": true, "ResourceConflictException": true, "ResourceNotReadyException": true,
	"SnapStartNotReadyException": true, "SnapStartTimeoutException": true, "EFSMountTimeoutException": true, "ENILimitReachedException": true,
	"SubnetIPAddressLimitReachedException": true, "ThrottlingException": true,
	"ExpiredTokenException": true, "RequestExpired": true, "RequestTimeTooSkewed": true,
}

// never are its names of 5xx for what keeps it from entering a function until somebody changes it. Any other 5xx may come after the
// function was entered.
var never = map[string]bool{
	"EC2AccessDeniedException": true, "EC2UnexpectedException": true, "InvalidRuntimeException": true, "InvalidSecurityGroupIDException": true,
	"InvalidSubnetIDException": true, "InvalidZipFileException": true, "KMSAccessDeniedException": true, "KMSDisabledException": true,
	"KMSInvalidStateException": true, "KMSNotFoundException": true, "SnapStartException": true,
}

// refused is the error of an answer that is none of success.
func refused(resp *http.Response) error {
	r := &refusal{code: codeOf(resp)}
	r.passes = later[r.code] || resp.StatusCode == http.StatusTooManyRequests
	switch {
	case r.passes:
		return r
	case resp.StatusCode < http.StatusInternalServerError, never[r.code]:
		return fmt.Errorf("%w: %w", runtime.ErrUndeliverable, r)
	default:
		return &tool.LostError{Err: r}
	}
}

// codeOf is the name of an error, or the status where that has none.
func codeOf(resp *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		text = nil // a header may say it
	}
	if code := awshttp.Code(resp, text); code != "" {
		return code
	}
	return fmt.Sprintf("status %d", resp.StatusCode)
}
