package dynamo

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/internal/store"
)

// throttles are codes of refused requests and, the last two, reasons of a cancelled transaction.
var throttles = map[string]bool{
	"ProvisionedThroughputExceededException": true, "ThrottlingException": true, "Throttling": true,
	"RequestLimitExceeded":          true,
	"ProvisionedThroughputExceeded": true, "ThrottlingError": true,
}

// explain gives err the meaning it has for the port, for a request of n operations. What has none stays as it is:
// uncertain.
func explain(err error, n int) error {
	if cancelled, ok := errors.AsType[*types.TransactionCanceledException](err); ok {
		return explainCancelled(err, cancelled.CancellationReasons, n)
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch code := api.ErrorCode(); {
	case code == "ConditionalCheckFailedException":
		return &store.ConditionError{Failed: []int{0}}
	case code == "TransactionConflictException", code == "ReplicatedWriteConflictException":
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case throttles[code]:
		return fmt.Errorf("%w: %w", store.ErrThrottled, err)
	case code == "ValidationException":
		return fmt.Errorf("%w: %w", invalid(api.ErrorMessage()), err)
	default:
		return err
	}
}

// explainCancelled reads why a transaction was cancelled. A conflict or throttling comes before conditions: an
// operation that met one was not looked at, so which conditions hold is known only when the transaction is sent again.
func explainCancelled(err error, reasons []types.CancellationReason, n int) error {
	if len(reasons) != n {
		return fmt.Errorf("%d reasons for %d operations: %w", len(reasons), n, err)
	}
	var failed []int
	var kind error
	for i, r := range reasons {
		switch code := aws.ToString(r.Code); {
		case code == "TransactionConflict":
			return fmt.Errorf("operation %d: %w: %w", i, store.ErrConflict, err)
		case throttles[code]:
			kind = store.ErrThrottled
		case code == "ConditionalCheckFailed":
			failed = append(failed, i)
		case code == "ValidationError" && kind == nil:
			kind = invalid(aws.ToString(r.Message))
		}
	}
	switch {
	case errors.Is(kind, store.ErrThrottled) || kind != nil && failed == nil:
		return fmt.Errorf("%w: %w", kind, err)
	case failed != nil:
		return &store.ConditionError{Failed: failed}
	default:
		return err
	}
}

// invalid tells an item over the limit from everything else that DynamoDB refuses to look at. It says which by its
// message alone.
func invalid(message string) error {
	if strings.Contains(message, "Item size") && strings.Contains(message, "exceeded the maximum allowed size") {
		return store.ErrTooLarge
	}
	return store.ErrInvalid
}

// isUncertain reports whether the request of err may have been executed. Only an answer that refuses it rules that out.
func isUncertain(err error) bool {
	if err == nil {
		return false
	}
	var api smithy.APIError
	var response *awshttp.ResponseError
	if !errors.As(err, &api) || api.ErrorCode() == "TransactionInProgressException" {
		return true
	}
	return !errors.As(err, &response) || response.HTTPStatusCode() >= http.StatusInternalServerError
}

// isTransient reports whether err says that nothing was done this time and that a retry may succeed.
func isTransient(err error) bool {
	if err == nil {
		return false
	}
	var cancelled *types.TransactionCanceledException
	n := 1
	if errors.As(err, &cancelled) {
		n = len(cancelled.CancellationReasons)
	}
	err = explain(err, n)
	return errors.Is(err, store.ErrThrottled) || errors.Is(err, store.ErrConflict)
}
