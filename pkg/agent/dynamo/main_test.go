package dynamo_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/countersign/countersign/internal/dynamolocal"
	"github.com/countersign/countersign/pkg/agent/clock"
	"github.com/countersign/countersign/pkg/agent/dynamo"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/store"
	"github.com/countersign/countersign/pkg/agent/store/storetest"
)

func TestMain(m *testing.M) { dynamolocal.Main(m) }

// realEngine gives an empty table of the real engine, and the client that reaches it.
func realEngine(t testing.TB) (*dynamodb.Client, string) {
	t.Helper()
	client := dynamo.NewClient(dynamolocal.Config(t), dynamolocal.Endpoint)
	return client, dynamolocal.Table(t, client, dynamo.IndexName)
}

func options() dynamo.Options {
	return dynamo.Options{Token: ids.System(clock.System()).Key}
}

func TestConformance(t *testing.T) {
	storetest.Table(t, func(t *testing.T) store.Table {
		client, name := realEngine(t)
		return dynamo.New(client, name, options())
	})
}
