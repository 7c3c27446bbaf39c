package tool

import (
	"crypto/sha256"
	"sync"
)

// schemaCacheSize is how many compiled schemas are kept: more than a definition has tools.
const schemaCacheSize = 256

// schemas is the cache in front of Compile. Losing it costs time, nothing else.
var schemas = schemaCache{byDigest: map[[sha256.Size]byte]*Schema{}}

// schemaCache keeps the schemas compiled last, the oldest making room. It is safe for concurrent use.
type schemaCache struct {
	mu       sync.Mutex
	byDigest map[[sha256.Size]byte]*Schema
	order    [][sha256.Size]byte // oldest first
}

// get returns the schema of these bytes, compiling it if it is not kept. Errors are not kept.
func (c *schemaCache) get(raw []byte, compile func([]byte) (*Schema, error)) (*Schema, error) {
	digest := sha256.Sum256(raw)
	c.mu.Lock()
	kept := c.byDigest[digest]
	c.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	s, err := compile(raw) // outside the lock: a slow schema holds up nobody else
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.byDigest[digest]; ok { // another goroutine compiled the same bytes meanwhile
		return first, nil
	}
	if len(c.order) == schemaCacheSize {
		delete(c.byDigest, c.order[0])
		c.order = c.order[1:]
	}
	c.byDigest[digest] = s
	c.order = append(c.order, digest)
	return s, nil
}
