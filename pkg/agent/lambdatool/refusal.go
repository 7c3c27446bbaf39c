package lambdatool

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/countersign/countersign/pkg/agent/runtime"
	"github.com/countersign/countersign/pkg/agent/tool/port"
)

// maxCode is how many bytes of a refusal's name are kept. What else it says is not: it may repeat the payload.
const maxCode = 100

// refusal is Lambda's name for why it did not enter a function.
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
		return &port.LostError{Err: r}
	}
}

// codeOf is the name of an error, or the status where that has none.
func codeOf(resp *http.Response) string {
	var said struct {
		Type string `json:"__type"`
	}
	code, _, _ := strings.Cut(resp.Header.Get("X-Amzn-Errortype"), ":")
	if text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)); err == nil && code == "" && json.Unmarshal(text, &said) == nil {
		code = said.Type[strings.LastIndex(said.Type, "#")+1:]
	}
	for _, c := range code { // only a name is shown
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			code = ""
			break
		}
	}
	if code == "" {
		code = fmt.Sprintf("status %d", resp.StatusCode)
	}
	return code[:min(len(code), maxCode)]
}
