package dynamolocal

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
	"testing"
)

// server is the second process as the tests see it.
type server struct {
	mu     sync.Mutex
	begun  bool
	err    error // of the start
	client *http.Client
	cmd    *exec.Cmd
	stdin  io.Closer
	dir    string // of the socket
}

var shared server

func (s *server) start(t testing.TB, folder string) (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return s.client, s.err
	}
	s.begun = true
	if s.dir, s.err = os.MkdirTemp("", "dynamodb-"); s.err != nil {
		return nil, s.err
	}
	socket := filepath.Join(s.dir, "socket")
	refused := s.launch(socket, folder, true)
	if refused != nil {
		t.Logf("DynamoDB Local listens on every interface: no network namespace here: %v", refused)
		s.err = s.launch(socket, folder, false)
	}
	s.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	s.client.CloseIdleConnections()
	return errors.Join(s.stdin.Close(), s.cmd.Wait(), os.RemoveAll(s.dir))
}
