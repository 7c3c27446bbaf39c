package ses

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// RefusedError is SES' name for why it did not take a mail. What else it says is left out: it may repeat the mail or an address.
type RefusedError struct {
	Code   string // as MessageRejected; "" where it is none
	Status int
}

func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("SES refused it with status %d", e.Status)
	}
	return "SES refused it: " + e.Code
}

// ErrorCode is the code, for logs.
func (e *RefusedError) ErrorCode() string { return e.Code }

// Permanent reports whether the same mail will be refused again.
func (e *RefusedError) Permanent() bool {
	return e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests && e.Code != "TooManyRequestsException" &&
		e.Code != "ThrottlingException" && e.Code != "Throttling"
}

func asRefused(err error, to **RefusedError) bool { return errors.As(err, to) }

// code is the name of an error: of the header, or of the body.
func code(header string, body []byte) string {
	name, _, _ := strings.Cut(header, ":")
	if name == "" {
		var said struct {
			Type string `json:"__type"`
		}
		if json.Unmarshal(body, &said) == nil {
			name = said.Type[strings.LastIndex(said.Type, "#")+1:]
		}
	}
	if len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return name
}
