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
	if s := c.kept(digest); s != nil {
		return s, nil
	}
	s, err := compile(raw) // outside the lock: a slow schema holds up nobody else
	if err != nil {
		return nil, err
	}
	return c.keep(digest, s), nil
}

func (c *schemaCache) kept(digest [sha256.Size]byte) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byDigest[digest]
}

// keep stores s, unless another goroutine compiled the same bytes meanwhile: then that one's is returned.
func (c *schemaCache) keep(digest [sha256.Size]byte, s *Schema) *Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.byDigest[digest]; ok {
		return first
	}
	if len(c.order) == schemaCacheSize {
		delete(c.byDigest, c.order[0])
		c.order = c.order[1:]
	}
	c.byDigest[digest] = s
	c.order = append(c.order, digest)
	return s
}
