package dynamo_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/standins"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/dynamo"
	"github.com/countersign/countersign/internal/store/storetest"
)

func TestMain(m *testing.M) { standins.MainWithDynamoDB(m) }

// realEngine gives an empty table of the real engine, and the configuration that reaches it.
func realEngine(t testing.TB) (aws.Config, string) {
	t.Helper()
	cfg := standins.DynamoDBConfig(t)
	return cfg, standins.DynamoDBTable(t, cfg, dynamo.IndexName)
}

// token draws the client request tokens of transactions.
var token = ids.System(clock.System()).Key

func TestConformance(t *testing.T) {
	storetest.Table(t, func(t *testing.T) store.Table {
		cfg, name := realEngine(t)
		return dynamo.New(cfg, name, token)
	})
}
