package tool

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeDNS resolves as it is told: each name has its answers, one after the other, the last one for ever.
type fakeDNS struct {
	mu      sync.Mutex
	answers map[string][][]string
	asked   []string
}

func (n *fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	answers := n.answers[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.answers[host] = answers[1:]
	}
	var addrs []netip.Addr
	for _, a := range answers[0] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, nil
}

// egressLab is a client whose connections all end at one server, whatever address they are for, after all checks.
type egressLab struct {
	*http.Client
	names  *fakeDNS
	mu     sync.Mutex
	dialed []string
}

func newEgressLab(t *testing.T, c EgressConfig, srv *httptest.Server) *egressLab {
	t.Helper()
	l := &egressLab{names: &fakeDNS{answers: map[string][][]string{}}}
	c.Resolve = l.names
	client, err := NewEgressClient(c)
	require.NoError(t, err)
	l.Client = client
	d, ok := client.Transport.(*egressGuard)
	require.True(t, ok)
	d.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		l.mu.Lock()
		l.dialed = append(l.dialed, address)
		l.mu.Unlock()
		if err := d.checkConnect(ctx, network, address, nil); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	return l
}

func (l *egressLab) get(t *testing.T, raw string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, raw, nil)
	if err != nil {
		return nil, err
	}
	resp, err := l.Do(r)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// Every trick leads to no connection, although the hosts are all allowed by name and by address.
func TestServerSideRequestForgery(t *testing.T) {
	const private = "an address that is not public"
	for want, urls := range map[string][]string{
		private: { // loopback, own and carriers' networks, metadata, multicast, reserved, documentation; mapped and translated
			"http://127.0.0.1/", "http://127.255.0.9/", "http://[::1]/", "http://[0:0:0:0:0:0:0:1]/",
			"http://0.0.0.0/", "http://0.1.2.3/", "http://[::]/", "http://10.1.2.3/", "http://172.16.0.1/",
			"http://172.31.255.254/", "http://192.168.1.1/", "http://[fd00:ec2::254]/",
			"http://100.100.100.200/", "http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/",
			"http://[fe80::1]/", "http://168.63.129.16/", "http://224.0.0.1/", "http://[ff02::1]/",
			"http://255.255.255.255/", "http://240.0.0.1/", "http://203.0.113.7/", "http://[2001:db8::1]/",
			"http://198.19.0.1/", "http://192.0.0.8/", "http://[::ffff:127.0.0.1]/",
			"http://[::ffff:a9fe:a9fe]/", "http://[::127.0.0.1]/", "http://[64:ff9b::a9fe:a9fe]/",
			"http://[64:ff9b:1::a00:1]/", "http://[2002:7f00:1::]/", "http://[2001:0:7f00:1::]/",
			"http://[fec0::1]/", "http://[100::1]/",
		},
		"without a zone": {"http://[fe80::1%25eth0]/"},
		"four decimal numbers": {
			"http://2130706433/", "http://0177.0.0.1/", "http://017700000001/", "http://0x7f000001/",
			"http://0x7f.0x0.0x0.0x1/", "http://0X7F.1/", "http://127.1/", "http://127.000.000.001/",
			"http://127.0.0.1.1/",
		},
		"want a name": {
			"http://trick.example./", "http://127.0.0.1./", "http://trick..example/", "http://１２７.0.0.1/",
			"http://127。0。0。1/", "http://①②⑦.0.0.1/", "http://trіck.example/", "http://tri\u00adck.example/",
			"http://%e2%91%a0.example/",
		},
		"without a user": {"http://trick.example@10.0.0.1/", "http://trick.example:80@10.0.0.1/"},
		"with a host":    {"http:///path", "http:trick.example"},
		"scheme":         {"file:///etc/passwd", "gopher://trick.example:25/_x"},
		"port":           {"http://trick.example:0/", "http://trick.example:65616/"},
		"not among the hosts": {
			"http://trick.example:22/", "http://other.example/", "http://eviltrick.example/",
			"http://trick.example.evil.example/",
		},
		"no such host": {"http://nowhere.example/"},
	} {
		for _, at := range urls {
			requireNoRequest(t, at, nil, want)
		}
	}
	for host, all := range map[string][]string{ // by their answers, some of several
		"localhost": {"127.0.0.1"}, "TRICK.example": {"192.168.0.1"},
		"trick.example": {"10.0.0.1", "169.254.169.254", "::ffff:169.254.169.254", "8.8.8.8 127.0.0.1", "127.0.0.1 8.8.8.8",
			"fe80::1%eth0", "2606:4700::1111 ::1"},
	} {
		for _, dns := range all {
			requireNoRequest(t, "http://"+host+"/", strings.Fields(dns), private)
		}
	}
}

// requireNoRequest wants a URL to lead to no connection, although its host is allowed by address; and trick.example by name.
func requireNoRequest(t *testing.T, at string, dns []string, want string) {
	t.Helper()
	t.Run(at+strings.Join(dns, ","), func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request came through") }))
		t.Cleanup(srv.Close)
		allow := []string{"trick.example", "nowhere.example", "localhost"}
		if u, err := url.Parse(at); err == nil && strings.HasPrefix(want, "an address") {
			allow = append(allow, u.Host)
		}
		l := newEgressLab(t, EgressConfig{Allow: allow}, srv)
		l.names.answers = map[string][][]string{"trick.example": {dns}, "TRICK.example": {dns}, "localhost": {dns}}
		_, err := l.get(t, at)
		require.ErrorContains(t, err, want)
		require.Empty(t, l.dialed, "nothing was dialled")
	})
}

// Who may be let in is told by whom; nobody lets in what belongs to the cloud.
func TestRefusalsSayWhoAllows(t *testing.T) {
	for at, allowed := range map[string]bool{"127.0.0.1": true, "10.0.0.1": true, "[fd00::1]": true, "169.254.169.254": false, "224.0.0.1": false, "[fd00:ec2::254]": false, "100.100.100.200": false} {
		l := newEgressLab(t, EgressConfig{Allow: []string{at}}, nil)
		_, err := l.get(t, "http://"+at+"/")
		require.ErrorContains(t, err, "at an address that is not public")
		require.Equal(t, allowed, strings.HasSuffix(err.Error(), "an operator may allow it in COUNTERSIGN_PRIVATE_HOSTS"), err)
	}
}

// What is public is reached, at the address that was checked.
func TestPublicHostsAreReached(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host)) }))
	t.Cleanup(srv.Close)
	for name, c := range map[string]struct{ url, dns, dialed string }{
		"a name":             {"http://api.example/x", "8.8.8.8", "8.8.8.8:80"},
		"upper case":         {"http://API.example/x", "8.8.8.8", "8.8.8.8:80"},
		"IPv6":               {"http://api.example/x", "2606:4700::1111", "[2606:4700::1111]:80"},
		"an address":         {"http://1.1.1.1/", "", "1.1.1.1:80"},
		"an IPv6 address":    {"http://[2606:4700::1111]:8080/", "", "[2606:4700::1111]:8080"},
		"beside private":     {"http://172.32.0.1/", "", "172.32.0.1:80"},
		"NAT64 of a public":  {"http://api.example/x", "64:ff9b::808:808", "[64:ff9b::808:808]:80"},
		"mapped of a public": {"http://api.example/x", "::ffff:8.8.8.8", "8.8.8.8:80"},
		"own port":           {"http://api.example:8443/x", "8.8.8.8", "8.8.8.8:8443"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEgressLab(t, EgressConfig{Allow: []string{"API.example", "api.example:8443", "1.1.1.1", "[2606:4700::1111]:8080", "172.32.0.1"}}, srv)
			l.names.answers = map[string][][]string{"api.example": {{c.dns}}, "API.example": {{c.dns}}}
			resp, err := l.get(t, c.url)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, []string{c.dialed}, l.dialed)
		})
	}
}

// A name is resolved once for a connection, and the very address that was checked is dialled; at the next connection it is checked again.
func TestDNSRebinding(t *testing.T) {
	hops := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops++
		if r.URL.Path == "/again" {
			http.Redirect(w, r, "/private", http.StatusFound)
		}
	}))
	t.Cleanup(srv.Close)
	l := newEgressLab(t, EgressConfig{Allow: []string{"trick.example"}}, srv)
	l.names.answers["trick.example"] = [][]string{{"8.8.8.8"}, {"127.0.0.1"}}
	_, err := l.get(t, "http://trick.example/")
	require.NoError(t, err)
	require.Equal(t, []string{"8.8.8.8:80"}, l.dialed)
	require.Len(t, l.names.asked, 1, "nobody asks a second time between check and dial")
	_, err = l.get(t, "http://trick.example/")
	require.ErrorContains(t, err, "not public")

	l.names.answers["trick.example"] = [][]string{{"8.8.8.8"}, {"169.254.169.254"}}
	_, err = l.get(t, "http://trick.example/again")
	require.ErrorAs(t, err, new(*EgressRefusal), "a redirect to the same name is checked as well")
	require.Equal(t, 2, hops)
	require.NotContains(t, BareURLError(err).Error(), "/private")
}

// A private host may be where an own network's hosts are, and nowhere worse.
func TestPrivateHosts(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	private, err := ParsePrivateHosts(" Intra.example:80, 10.0.0.5:8080 ,169.254.1.1:80,[::1]:80,")
	require.NoError(t, err)
	allow := []string{"intra.example", "intra.example:81", "10.0.0.5:8080", "10.0.0.5", "169.254.1.1", "[::1]", "other.example"}
	for ok, all := range map[bool][][2]string{ // URLs and where the names are
		true: { // an own network's addresses, public ones, and the literals of the list
			{"http://intra.example/", "10.0.0.9"}, {"http://intra.example/", "127.0.0.1"},
			{"http://intra.example/", "fd12::1"}, {"http://intra.example/", "8.8.8.8"},
			{"http://10.0.0.5:8080/", ""}, {"http://169.254.1.1/", ""}, {"http://[::1]/", ""},
			{"http://intra.example/", "100.100.100.201"},
		},
		false: { // metadata of the clouds, containers' credentials, other ports, names and literals
			{"http://intra.example/", "169.254.169.254"}, {"http://intra.example/", "169.254.1.1"},
			{"http://intra.example/", "169.254.170.2"}, {"http://intra.example/", "::ffff:169.254.169.254"},
			{"http://intra.example/", "fd00:ec2::254"}, {"http://intra.example/", "fd00:ec2:0:1::23"},
			{"http://intra.example/", "100.100.100.200"}, {"http://intra.example/", "::ffff:100.100.100.200"},
			{"http://intra.example/", "fd20:ce::254"}, {"http://intra.example/", "fd00:c1::a9fe:a9fe"},
			{"http://intra.example/", "0.0.0.0"}, {"http://intra.example:81/", "10.0.0.9"},
			{"http://10.0.0.5/", ""}, {"http://other.example/", "10.0.0.5"},
		},
	} {
		for _, c := range all {
			t.Run(c[0]+" at "+c[1], func(t *testing.T) {
				l := newEgressLab(t, EgressConfig{Allow: allow, Private: private}, srv)
				l.names.answers = map[string][][]string{"intra.example": {{c[1]}}, "other.example": {{c[1]}}}
				_, err := l.get(t, c[0])
				if ok {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, "not public")
				require.Empty(t, l.dialed)
			})
		}
	}
	l := newEgressLab(t, EgressConfig{Private: private}, srv)
	_, err = l.get(t, "http://10.0.0.5:8080/")
	require.ErrorContains(t, err, "not among the hosts", "what is private is not allowed by that")
	for _, bad := range []string{"intra.example", "intra.example:0", "http://intra.example:80", "10.0.0.0/8:80", "*:80", "a b:80"} {
		_, err := ParsePrivateHosts(bad)
		require.ErrorContains(t, err, "want host:port pairs", bad)
	}
}

// The last look is at what the system connects to, whoever dials.
func TestLastLookIsAtTheRealAddress(t *testing.T) {
	c, err := NewEgressClient(EgressConfig{Allow: []string{"x.example"}})
	require.NoError(t, err)
	d, ok := c.Transport.(*egressGuard)
	require.True(t, ok)
	_, err = d.connect(t.Context(), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "was not checked")
	_, err = d.connect(context.WithValue(t.Context(), dialled{}, hostPort{"x.example", "1"}), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "not public")
}

func TestNewRefusesBadEntries(t *testing.T) {
	for _, bad := range []string{"", "*", "*.example", "http://x.example", "x.example/", "x.example:http", "x.example:", "exämple", "127.1", "[::1", "::1", strings.Repeat("a", 64)} {
		_, err := NewEgressClient(EgressConfig{Allow: []string{bad}})
		require.ErrorAs(t, err, new(*EgressRefusal), "%q", bad)
	}
}
