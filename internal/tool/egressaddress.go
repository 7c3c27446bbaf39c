package tool

import (
	"net/netip"
	"slices"
)

// notPublic4 are the IPv4 addresses that are not, or not certainly, somebody's public host (IANA, special-purpose
// address registry).
var notPublic4 = prefixes(
	"0.0.0.0/8",        // this host, on this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // carriers' own
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // Azure's host, as seen from its machines
	"169.254.0.0/16",   // link-local, and with it the clouds' metadata
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocols' own
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // relays of 6to4
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, and broadcast
)

// public6 is where public IPv6 addresses are, notPublic6 what of it is not one: forms that carry an IPv4 address among
// them.
var (
	public6    = netip.MustParsePrefix("2000::/3")
	notPublic6 = prefixes(
		"2001::/23",     // protocols' own: Teredo, benchmarks, hashes
		"2001:db8::/32", // documentation
		"2002::/16",     // 6to4
		"3fff::/20",     // documentation
	)
	nat64 = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address, as a network without IPv4 reaches it
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func containsAddr(all []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
}

// isPublic reports whether an address may be public. An IPv6 address that carries an IPv4 one counts as that one.
func isPublic(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Is4() {
		return !containsAddr(notPublic4, a)
	}
	return a.IsValid() && public6.Contains(a) && !containsAddr(notPublic6, a)
}

var (
	carriers = prefixes("100.64.0.0/10")
	// clouds are where clouds keep a machine's metadata and credentials, at addresses that an own network may have as
	// well.
	clouds = prefixes(
		"169.254.0.0/16",
		"100.100.100.200/32",     // Alibaba Cloud
		"fd00:ec2::/32",          // AWS
		"fd20:ce::254/128",       // Google Cloud
		"fd00:c1::a9fe:a9fe/128", // Oracle Cloud
	)
)

// isLocal reports whether an address is private or the loopback, and not where a cloud keeps credentials.
func isLocal(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && !containsAddr(clouds, a) && (a.IsPrivate() || a.IsLoopback() || containsAddr(carriers, a))
}
