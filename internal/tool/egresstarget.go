package tool

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// EnvPrivateHosts is the variable with an operator's Private.
const EnvPrivateHosts = "COUNTERSIGN_PRIVATE_HOSTS"

// hostPort is a host, in lower case, and a port.
type hostPort struct{ host, port string }

func (t hostPort) String() string { return net.JoinHostPort(t.host, t.port) }

// PrivateHosts are the hosts that may be at addresses that are not public: those of an own network. A name among them
// may be at a private or loopback address, and never at one where a cloud keeps credentials; such a one, and a
// link-local one, has to be there itself. The zero value has none.
type PrivateHosts []string

// ParsePrivateHosts reads host:port pairs with commas between them.
func ParsePrivateHosts(list string) (PrivateHosts, error) {
	var p PrivateHosts
	for entry := range strings.SplitSeq(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		t, err := parseAllowedHost(entry)
		if err != nil || t.port == "" {
			return nil, fmt.Errorf("got %.100q, want host:port pairs with commas between them", entry)
		}
		p = append(p, t.String())
	}
	return p, nil
}

// Has reports whether a host:port is among them.
func (p PrivateHosts) Has(at string) bool { return slices.Contains(p, strings.ToLower(at)) }

// OriginOf returns the host:port that a URL leads to, in the form of Config.Allow. A URL that no client of this package
// would follow is an error.
func OriginOf(u *url.URL) (string, error) {
	t, err := parseHostPort(u)
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

// ParseURL reads a URL that a client of this package may be made for. Its errors repeat nothing of what follows the
// host.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, refuseEgress("want a URL")
	}
	_, err = parseHostPort(u)
	return u, err
}

// CheckAllowedHost says what is wrong with an entry of Config.Allow.
func CheckAllowedHost(entry string) error {
	_, err := parseAllowedHost(entry)
	return err
}

var schemePorts = map[string]string{"http": "80", "https": "443"}

// parseHostPort returns where a URL leads, in one unambiguous spelling.
func parseHostPort(u *url.URL) (hostPort, error) {
	port := schemePorts[u.Scheme]
	switch {
	case port == "":
		return hostPort{}, refuseEgress("got scheme %.20q, want http or https", u.Scheme)
	case u.User != nil:
		return hostPort{}, refuseEgress("want a URL without a user")
	case u.Opaque != "" || u.Host == "":
		return hostPort{}, refuseEgress("want a URL with a host")
	}
	host, own, bracketed, err := splitHost(u.Host)
	if err != nil {
		return hostPort{}, err
	}
	return hostPort{host, cmp.Or(own, port)}, checkHost(host, bracketed)
}

// parseAllowedHost reads host or host:port; a target without a port stands for the schemes' own.
func parseAllowedHost(entry string) (hostPort, error) {
	host, port, bracketed, err := splitHost(entry)
	if err != nil {
		return hostPort{}, err
	}
	return hostPort{host, port}, checkHost(host, bracketed)
}

// splitHost takes a port off a host, and an IPv6 address out of its brackets.
func splitHost(s string) (host, port string, bracketed bool, err error) {
	host, port = s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return "", "", false, refuseEgress("got port %.20q, want 1 to 65535", port)
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return "", "", false, refuseEgress("got %.100q, want a host", s)
		}
		host = inner
	}
	return strings.ToLower(host), port, bracketed, nil
}

var (
	label = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
	// numeric is the last label of a host that some resolvers read as an address: decimal, octal or hexadecimal.
	numeric = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// checkHost wants a name in ASCII, an IPv4 address as four decimal numbers, or an IPv6 address in brackets, without a
// zone: what resolvers read in ways of their own is refused.
func checkHost(host string, bracketed bool) error {
	if bracketed {
		a, err := netip.ParseAddr(host)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return refuseEgress("got %.60q in brackets, want an IPv6 address without a zone", host)
		}
		return nil
	}
	labels := strings.Split(host, ".")
	if len(host) > 253 || slices.ContainsFunc(labels, func(l string) bool { return !label.MatchString(l) }) {
		return refuseEgress("got host %.100q, want a name of letters, digits and '-' (others as xn--...) or an address", host)
	}
	if !numeric.MatchString(labels[len(labels)-1]) {
		return nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil || !a.Is4() {
		return refuseEgress("got host %.60q, want an IPv4 address as four decimal numbers", host)
	}
	return nil
}
