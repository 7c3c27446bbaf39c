package dynamo_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
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
var token = clock.NewIDs(clock.System()).Key

func TestConformance(t *testing.T) {
	storetest.Table(t, func(t *testing.T) store.Table {
		cfg, name := realEngine(t)
		return dynamo.New(cfg, name, token)
	})
}

// TestADamagedItemInTheTable: what is changed behind this package's back is found when it is read, and named; a query
// goes on behind it.
func TestADamagedItemInTheTable(t *testing.T) {
	cfg := standins.DynamoDBConfig(t)
	name := standins.DynamoDBTable(t, cfg, dynamo.IndexName)
	raw := sdk.NewFromConfig(cfg)
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	for what, change := range map[string]func(item map[string]types.AttributeValue){
		"its sum":  func(item map[string]types.AttributeValue) { item["Sum"] = &types.AttributeValueMemberN{Value: "7"} },
		"its type": func(item map[string]types.AttributeValue) { item["Body"] = text("x") },
	} {
		t.Run(what, func(t *testing.T) {
			table := dynamo.New(cfg, name, token)
			partition, index := "P "+what, "I "+what
			var keys []store.Key
			for i := range 3 {
				k := store.Key{PK: partition, SK: fmt.Sprint(i)}
				keys = append(keys, k)
				it := store.Item{Key: k, Body: []byte(`{"a":1}`), Index: index, IndexSort: fmt.Sprint(i), Attrs: map[string]store.Value{"n": store.Num(1)}}
				require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: it}))
			}
			at := map[string]types.AttributeValue{"PK": text(partition), "SK": text("1")}
			got, err := raw.GetItem(t.Context(), &sdk.GetItemInput{TableName: &name, Key: at, ConsistentRead: aws.Bool(true)})
			require.NoError(t, err)
			change(got.Item)
			_, err = raw.PutItem(t.Context(), &sdk.PutItemInput{TableName: &name, Item: got.Item})
			require.NoError(t, err)

			requireNamed := func(err error) {
				t.Helper()
				var damaged *store.DamagedError
				require.ErrorAs(t, err, &damaged)
				require.Equal(t, keys[1], damaged.Key)
			}
			_, _, err = table.Get(t.Context(), keys[1])
			requireNamed(err)
			_, found, err := table.Get(t.Context(), keys[0])
			require.NoError(t, err)
			require.True(t, found)
			for _, r := range []store.Range{{PK: partition}, {PK: partition, Reverse: true, Limit: 1}, {PK: index, Index: true, Limit: 1}} {
				items, failures := storetest.ReadAround(t, table, r)
				require.Len(t, items, 2, "the items before and behind it")
				require.Len(t, failures, 1)
				requireNamed(failures[0])
			}
		})
	}
}
