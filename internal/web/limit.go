package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// Limit is a rate limit for each key: Burst at once, then Rate a second. It counts in this process only; the gateway
// has its own limits. Zero values of Rate and Burst allow nothing. Safe for concurrent use.
type Limit struct {
	Rate  float64
	Burst float64
	Clock clock.Clock

	mu   sync.Mutex
	used map[string]bucket
}

// bucket is the used part of a key's limit at a time.
type bucket struct {
	level float64
	at    time.Time
}

// maxBuckets is the number of keys kept. All are dropped beyond that, which only loosens the limit.
const maxBuckets = 10_000

// Allow counts one use; false = over the limit and not counted.
func (l *Limit) Allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, now := l.used[key], l.Clock.Now()
	if !b.at.IsZero() {
		b.level = max(0, b.level-now.Sub(b.at).Seconds()*l.Rate)
	}
	b.at = now
	if b.level+1 > l.Burst {
		return false
	}
	b.level++
	if l.used == nil || len(l.used) >= maxBuckets {
		l.used = map[string]bucket{}
	}
	l.used[key] = b
	return true
}

// clientAddress returns the address of a client without its port. Of an IPv6 address it keeps 64 bits, the prefix of
// one subscriber.
func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a gateway gives no port
		host = r.RemoteAddr
	}
	at, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if at = at.Unmap().WithZone(""); at.Is4() {
		return at.String()
	}
	return netip.PrefixFrom(at, 64).Masked().String()
}
