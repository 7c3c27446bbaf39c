package egress

import (
	"context"
	"errors"
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

// names resolves as it is told: each name has its answers, one after the other, the last one for ever.
type names struct {
	mu      sync.Mutex
	answers map[string][][]string
	asked   []string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
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

// lab is a client whose connections all end at one server, whatever address they are for, after all checks.
type lab struct {
	*http.Client
	names  *names
	mu     sync.Mutex
	dialed []string
}

func newLab(t *testing.T, c Config, srv *httptest.Server) *lab {
	t.Helper()
	l := &lab{names: &names{answers: map[string][][]string{}}}
	c.Resolve = l.names
	client, err := New(c)
	require.NoError(t, err)
	l.Client = client
	d, ok := client.Transport.(*guard)
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

func (l *lab) get(t *testing.T, raw string) (*http.Response, error) {
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
	for trick, c := range map[string]struct {
		url  string
		dns  []string // of "trick.example", where the URL has it
		want string   // of the error; "" = that it is not public
	}{
		"loopback":                         {url: "http://127.0.0.1/"},
		"loopback, elsewhere in 127/8":     {url: "http://127.255.0.9/"},
		"loopback in IPv6":                 {url: "http://[::1]/"},
		"loopback in IPv6, written out":    {url: "http://[0:0:0:0:0:0:0:1]/"},
		"unspecified":                      {url: "http://0.0.0.0/"},
		"this network":                     {url: "http://0.1.2.3/"},
		"unspecified in IPv6":              {url: "http://[::]/"},
		"private 10/8":                     {url: "http://10.1.2.3/"},
		"private 172.16/12, first":         {url: "http://172.16.0.1/"},
		"private 172.16/12, last":          {url: "http://172.31.255.254/"},
		"private 192.168/16":               {url: "http://192.168.1.1/"},
		"unique local IPv6":                {url: "http://[fd00:ec2::254]/"},
		"carriers' own 100.64/10":          {url: "http://100.100.100.200/"},
		"cloud metadata":                   {url: "http://169.254.169.254/latest/meta-data/"},
		"container credentials":            {url: "http://169.254.170.2/"},
		"link-local IPv6":                  {url: "http://[fe80::1]/"},
		"link-local IPv6 with a zone":      {url: "http://[fe80::1%25eth0]/", want: "without a zone"},
		"host of Azure":                    {url: "http://168.63.129.16/"},
		"multicast":                        {url: "http://224.0.0.1/"},
		"multicast IPv6":                   {url: "http://[ff02::1]/"},
		"broadcast":                        {url: "http://255.255.255.255/"},
		"reserved":                         {url: "http://240.0.0.1/"},
		"documentation":                    {url: "http://203.0.113.7/"},
		"documentation IPv6":               {url: "http://[2001:db8::1]/"},
		"benchmark":                        {url: "http://198.19.0.1/"},
		"protocols' own":                   {url: "http://192.0.0.8/"},
		"IPv4-mapped loopback":             {url: "http://[::ffff:127.0.0.1]/"},
		"IPv4-mapped metadata in hex":      {url: "http://[::ffff:a9fe:a9fe]/"},
		"IPv4-compatible loopback":         {url: "http://[::127.0.0.1]/"},
		"NAT64 of metadata":                {url: "http://[64:ff9b::a9fe:a9fe]/"},
		"NAT64 of an own network":          {url: "http://[64:ff9b:1::a00:1]/"},
		"6to4 of loopback":                 {url: "http://[2002:7f00:1::]/"},
		"Teredo":                           {url: "http://[2001:0:7f00:1::]/"},
		"site-local IPv6":                  {url: "http://[fec0::1]/"},
		"discard-only IPv6":                {url: "http://[100::1]/"},
		"decimal host":                     {url: "http://2130706433/", want: "four decimal numbers"},
		"octal host":                       {url: "http://0177.0.0.1/", want: "four decimal numbers"},
		"octal host in one":                {url: "http://017700000001/", want: "four decimal numbers"},
		"hex host":                         {url: "http://0x7f000001/", want: "four decimal numbers"},
		"hex host in parts":                {url: "http://0x7f.0x0.0x0.0x1/", want: "four decimal numbers"},
		"hex host, upper case":             {url: "http://0X7F.1/", want: "four decimal numbers"},
		"short host":                       {url: "http://127.1/", want: "four decimal numbers"},
		"leading zeros":                    {url: "http://127.000.000.001/", want: "four decimal numbers"},
		"too many numbers":                 {url: "http://127.0.0.1.1/", want: "four decimal numbers"},
		"trailing dot":                     {url: "http://trick.example./", want: "want a name"},
		"trailing dot of an address":       {url: "http://127.0.0.1./", want: "want a name"},
		"empty label":                      {url: "http://trick..example/", want: "want a name"},
		"full-width digits":                {url: "http://１２７.0.0.1/", want: "want a name"},
		"ideographic full stop":            {url: "http://127。0。0。1/", want: "want a name"},
		"circled digits":                   {url: "http://①②⑦.0.0.1/", want: "want a name"},
		"homograph":                        {url: "http://trіck.example/", want: "want a name"},
		"soft hyphen":                      {url: "http://tri\u00adck.example/", want: "want a name"},
		"percent-encoded host":             {url: "http://%e2%91%a0.example/", want: "want a name"},
		"user that looks like the host":    {url: "http://trick.example@10.0.0.1/", want: "without a user"},
		"user and password":                {url: "http://trick.example:80@10.0.0.1/", want: "without a user"},
		"no host":                          {url: "http:///path", want: "with a host"},
		"opaque":                           {url: "http:trick.example", want: "with a host"},
		"file":                             {url: "file:///etc/passwd", want: "scheme"},
		"gopher":                           {url: "gopher://trick.example:25/_x", want: "scheme"},
		"port 0":                           {url: "http://trick.example:0/", want: "port"},
		"port that overflows":              {url: "http://trick.example:65616/", want: "port"},
		"another port":                     {url: "http://trick.example:22/", want: "not among the hosts"},
		"another host":                     {url: "http://other.example/", want: "not among the hosts"},
		"allowed name as a suffix":         {url: "http://eviltrick.example/", want: "not among the hosts"},
		"allowed name as a prefix":         {url: "http://trick.example.evil.example/", want: "not among the hosts"},
		"localhost":                        {url: "http://localhost/", dns: []string{"127.0.0.1"}},
		"name of a private address":        {url: "http://trick.example/", dns: []string{"10.0.0.1"}},
		"name of metadata":                 {url: "http://trick.example/", dns: []string{"169.254.169.254"}},
		"name of mapped metadata":          {url: "http://trick.example/", dns: []string{"::ffff:169.254.169.254"}},
		"name of a public and a private":   {url: "http://trick.example/", dns: []string{"8.8.8.8", "127.0.0.1"}},
		"name of a private and a public":   {url: "http://trick.example/", dns: []string{"127.0.0.1", "8.8.8.8"}},
		"name of an IPv6 with a zone":      {url: "http://trick.example/", dns: []string{"fe80::1%eth0"}},
		"name of public IPv6 and loopback": {url: "http://trick.example/", dns: []string{"2606:4700::1111", "::1"}},
		"name that is not there":           {url: "http://nowhere.example/", want: "no such host"},
		"name, upper case, of a private":   {url: "http://TRICK.example/", dns: []string{"192.168.0.1"}},
	} {
		t.Run(trick, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request came through") }))
			t.Cleanup(srv.Close)
			allow := []string{"trick.example", "nowhere.example", "localhost"}
			if u, err := url.Parse(c.url); err == nil && c.want == "" {
				allow = append(allow, u.Host)
			}
			l := newLab(t, Config{Allow: allow}, srv)
			l.names.answers = map[string][][]string{"trick.example": {c.dns}, "TRICK.example": {c.dns}, "localhost": {c.dns}}
			delete(l.names.answers, "nowhere.example")
			_, err := l.get(t, c.url)
			want := c.want
			if want == "" {
				want = "an address that is not public"
			}
			require.ErrorContains(t, err, want)
			require.Empty(t, l.dialed, "nothing was dialled")
		})
	}
}

// Who may be let in is told by whom; nobody lets in what belongs to the cloud.
func TestRefusalsSayWhoAllows(t *testing.T) {
	for at, allowed := range map[string]bool{"127.0.0.1": true, "10.0.0.1": true, "[fd00::1]": true, "169.254.169.254": false, "224.0.0.1": false, "[fd00:ec2::254]": false, "100.100.100.200": false} {
		l := newLab(t, Config{Allow: []string{at}}, nil)
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
			l := newLab(t, Config{Allow: []string{"API.example", "api.example:8443", "1.1.1.1", "[2606:4700::1111]:8080", "172.32.0.1"}}, srv)
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
	l := newLab(t, Config{Allow: []string{"trick.example"}}, srv)
	l.names.answers["trick.example"] = [][]string{{"8.8.8.8"}, {"127.0.0.1"}}
	_, err := l.get(t, "http://trick.example/")
	require.NoError(t, err)
	require.Equal(t, []string{"8.8.8.8:80"}, l.dialed)
	require.Len(t, l.names.asked, 1, "nobody asks a second time between check and dial")
	_, err = l.get(t, "http://trick.example/")
	require.ErrorContains(t, err, "not public")

	l.names.answers["trick.example"] = [][]string{{"8.8.8.8"}, {"169.254.169.254"}}
	_, err = l.get(t, "http://trick.example/again")
	var refused *RefusedError
	require.ErrorAs(t, err, &refused, "a redirect to the same name is checked as well")
	require.Equal(t, 2, hops)
	require.NotContains(t, Bare(err).Error(), "/private")
}

// A private host may be where an own network's hosts are, and nowhere worse.
func TestPrivateHosts(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	private, err := ParsePrivate(" Intra.example:80, 10.0.0.5:8080 ,169.254.1.1:80,[::1]:80,")
	require.NoError(t, err)
	allow := []string{"intra.example", "intra.example:81", "10.0.0.5:8080", "10.0.0.5", "169.254.1.1", "[::1]", "other.example"}
	for name, c := range map[string]struct {
		url, dns string
		ok       bool
	}{
		"name at a private address":       {"http://intra.example/", "10.0.0.9", true},
		"name at loopback":                {"http://intra.example/", "127.0.0.1", true},
		"name at a unique local address":  {"http://intra.example/", "fd12::1", true},
		"name at a public address":        {"http://intra.example/", "8.8.8.8", true},
		"address":                         {"http://10.0.0.5:8080/", "", true},
		"link-local address itself":       {"http://169.254.1.1/", "", true},
		"IPv6 loopback":                   {"http://[::1]/", "", true},
		"name rebound to metadata":        {"http://intra.example/", "169.254.169.254", false},
		"name rebound to another literal": {"http://intra.example/", "169.254.1.1", false},
		"name at container credentials":   {"http://intra.example/", "169.254.170.2", false},
		"name at mapped metadata":         {"http://intra.example/", "::ffff:169.254.169.254", false},
		"name at AWS's IPv6 metadata":     {"http://intra.example/", "fd00:ec2::254", false},
		"name at AWS's IPv6 containers":   {"http://intra.example/", "fd00:ec2:0:1::23", false},
		"name at Alibaba's metadata":      {"http://intra.example/", "100.100.100.200", false},
		"name at mapped Alibaba's":        {"http://intra.example/", "::ffff:100.100.100.200", false},
		"name beside Alibaba's metadata":  {"http://intra.example/", "100.100.100.201", true},
		"name at Google's IPv6 metadata":  {"http://intra.example/", "fd20:ce::254", false},
		"name at Oracle's IPv6 metadata":  {"http://intra.example/", "fd00:c1::a9fe:a9fe", false},
		"name at the unspecified address": {"http://intra.example/", "0.0.0.0", false},
		"another port of it":              {"http://intra.example:81/", "10.0.0.9", false},
		"another port of the address":     {"http://10.0.0.5/", "", false},
		"another name":                    {"http://other.example/", "10.0.0.5", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Config{Allow: allow, Private: private}, srv)
			l.names.answers = map[string][][]string{"intra.example": {{c.dns}}, "other.example": {{c.dns}}}
			_, err := l.get(t, c.url)
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "not public")
			require.Empty(t, l.dialed)
		})
	}
	l := newLab(t, Config{Private: private}, srv)
	_, err = l.get(t, "http://10.0.0.5:8080/")
	require.ErrorContains(t, err, "not among the hosts", "what is private is not allowed by that")
	for _, bad := range []string{"intra.example", "intra.example:0", "http://intra.example:80", "10.0.0.0/8:80", "*:80", "a b:80"} {
		_, err := ParsePrivate(bad)
		require.ErrorContains(t, err, "want host:port pairs", bad)
	}
}

// The last look is at what the system connects to, whoever dials.
func TestLastLookIsAtTheRealAddress(t *testing.T) {
	c, err := New(Config{Allow: []string{"x.example"}})
	require.NoError(t, err)
	d, ok := c.Transport.(*guard)
	require.True(t, ok)
	_, err = d.connect(t.Context(), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "was not checked")
	_, err = d.connect(context.WithValue(t.Context(), dialled{}, target{"x.example", "1"}), "tcp", "127.0.0.1:1")
	require.ErrorContains(t, err, "not public")
}

func TestNewRefusesBadEntries(t *testing.T) {
	for _, bad := range []string{"", "*", "*.example", "http://x.example", "x.example/", "x.example:http", "x.example:", "exämple", "127.1", "[::1", "::1", strings.Repeat("a", 64)} {
		_, err := New(Config{Allow: []string{bad}})
		var refused *RefusedError
		require.True(t, errors.As(err, &refused), "%q", bad)
	}
}
