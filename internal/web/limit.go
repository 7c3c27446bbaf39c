package web

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// Limit lets each key do something so often: Burst times at once, and Rate times a second after that. It counts in this process alone: of a function
// that runs in several, each has its own. The gateway's limits stand before all of them. Safe for concurrent use; the zero values of Rate and Burst let
// nothing through.
type Limit struct {
	Rate  float64
	Burst float64
	Clock clock.Clock

	mu   sync.Mutex
	used map[string]bucket
}

// bucket is what a key has used up, as of then.
type bucket struct {
	level float64
	at    time.Time
}

// maxBuckets is how many keys are kept. Whoever comes as so many gets them all forgotten, which costs the others nothing.
const maxBuckets = 10_000

// Take counts one more; false says that it is one too many, and is not counted.
func (l *Limit) Take(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.now(key)
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

func (l *Limit) now(key string) bucket {
	b, now := l.used[key], l.Clock.Now()
	if !b.at.IsZero() {
		b.level = max(0, b.level-now.Sub(b.at).Seconds()*l.Rate)
	}
	b.at = now
	return b
}

// sourceOf is where a request comes from, as limits count it: the address without its port, which changes with every
// connection; of IPv6 its first 64 bits, which one subscriber has all addresses of.
func sourceOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a gateway gives the address alone
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
