package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/policy"
)

// devCommand serves the API on a TCP port, beside the socket, until it is interrupted. It serves the registered
// agents and those of the current directory, which it reads again when they are saved.
type devCommand struct {
	Addr           string `default:"127.0.0.1:8420" placeholder:"HOST:PORT" help:"Where to listen (127.0.0.1:8420)."`
	InsecureListen bool   `help:"Allow an address that others can reach. Nothing is encrypted."`
}

func (c *devCommand) run(ctx context.Context, p *program) error {
	host, err := c.parseHost()
	if err != nil {
		return err
	}
	_, problems := p.loadLocalAgents()
	if err := errors.Join(problems...); err != nil {
		return usageErrorf("%w", err)
	}
	p.live = &liveAgents{p: p}
	who, err := readPrincipals(p.home)
	if err != nil {
		return err
	}
	as, err := who.resolvePrincipal(p.as)
	if err != nil {
		return usageErrorf("--as: %v", err)
	}
	e, err := p.openEngineAlone(ctx, who)
	if err != nil {
		return err
	}
	return errors.Join(c.serve(ctx, e, host, as), e.drainAndClose(ctx))
}

// parseHost checks the address and returns the host to listen on.
func (c *devCommand) parseHost() (string, error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return "", usageErrorf("--addr: got %q, want HOST:PORT, such as 127.0.0.1:8420", c.Addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", usageErrorf("--addr: got port %q, want 0 to 65535", port)
	}
	if strings.EqualFold(host, "localhost") { // not resolved: localhost always means this machine
		return "127.0.0.1", nil
	}
	ip, err := netip.ParseAddr(host)
	if (err != nil || !ip.IsLoopback()) && !c.InsecureListen {
		return "",
			usageErrorf("--addr: others can reach %q, and whoever has the token owns this machine; want 127.0.0.1, "+
				"[::1] or localhost, "+
				"or --insecure-listen if it is meant", c.Addr)
	}
	return host, nil
}

// serve listens, resumes open runs, and waits for the interrupt or an error of the server.
func (c *devCommand) serve(ctx context.Context, e *engine, host string, as policy.Principal) error {
	token, err := readToken(e.home.Dir, ids.System(e.p.clock).Token)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: another process has the port; choose one with --addr", c.Addr)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Addr, err)
	}
	if e.web, err = newWebServer(e, host, l.Addr().(*net.TCPAddr), token, as); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := e.ready(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	failed := make(chan error, 1)
	e.p.clock.Go(func() { failed <- e.web.server.Serve(l) })
	if err := e.web.printAddress(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		e.p.logLine("countersign: ending; what is under way has %s to end, and runs stay as they are. Ctrl-C "+
			"once more ends at once", e.p.shutdownGrace())
		return nil
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
}
