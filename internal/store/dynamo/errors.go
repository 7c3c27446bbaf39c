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

// throttles are error codes of refused requests; the last two are reasons of a cancelled transaction.
var throttles = map[string]bool{
	"ProvisionedThroughputExceededException": true, "ThrottlingException": true, "Throttling": true,
	"RequestLimitExceeded":          true,
	"ProvisionedThroughputExceeded": true, "ThrottlingError": true,
}

// explain maps err to the errors of the port, for a request of n operations. Any other error is unchanged, which means
// that the outcome is unknown.
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

// explainCancelled returns why a transaction was cancelled. Conflicts and throttling come before failed conditions:
// DynamoDB does not check an operation that met one, so the conditions are known only after a resend.
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

// invalid tells an item over the limit from other invalid requests. Only the message says which it is.
func invalid(message string) error {
	if strings.Contains(message, "Item size") && strings.Contains(message, "exceeded the maximum allowed size") {
		return store.ErrTooLarge
	}
	return store.ErrInvalid
}

// isUncertain reports whether the request of err may have been executed. Only a refusal by DynamoDB rules that out.
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
