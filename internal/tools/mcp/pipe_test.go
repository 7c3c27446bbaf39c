package mcp_test

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/tools/mcp"
)

// piped is a server as a program is one, without the program: it answers each request with lines, by hand, and may end with them.
func piped(answer func(ask) (text string, ends bool)) mcp.Start {
	return func([]string, string, map[string]string) (mcp.Program, error) {
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		go func() {
			defer func() { _, _ = in.Close(), out.Close() }() // pipes in memory
			told := bufio.NewScanner(in)
			told.Buffer(nil, 32<<20)
			for told.Scan() {
				var a ask
				if json.Unmarshal(told.Bytes(), &a) != nil || a.ID == nil || a.Method == "" {
					continue
				}
				text, ends := answer(a)
				if _, err := io.WriteString(out, text+"\n"); err != nil || ends {
					return
				}
			}
		}()
		both := &ends{Reader: fromServer, Writer: toServer, close: []io.Closer{fromServer, toServer}}
		return pipes{Transport: &sdk.IOTransport{Reader: both, Writer: both}, ends: both}, nil
	}
}

// pipes are a program that has nothing to say at its end.
type pipes struct {
	sdk.Transport
	ends *ends
}

func (p pipes) End()              { _ = p.ends.Close() } // pipes in memory
func (p pipes) LastWords() string { return "" }

// ends are the client's ends of two pipes.
type ends struct {
	io.Reader
	io.Writer
	once  sync.Once
	close []io.Closer
}

func (e *ends) Close() error {
	e.once.Do(func() {
		for _, c := range e.close {
			_ = c.Close() // pipes in memory
		}
	})
	return nil
}

// speaks is what a server of the newest protocol with the tool echo answers.
func speaks(a ask) string {
	switch a.Method {
	case "server/discover":
		return answered(a, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case "tools/list":
		return answered(a, `{"tools":[`+echo+`]}`)
	case "tools/call":
		return answered(a, `{"content":[{"type":"text","text":"hello"}]}`)
	default:
		return `{"jsonrpc":"2.0","id":` + string(a.ID) + `,"error":{"code":-32601,"message":"no such method"}}`
	}
}

func answered(a ask, result string) string {
	return `{"jsonrpc":"2.0","id":` + string(a.ID) + `,"result":` + result + `}`
}
