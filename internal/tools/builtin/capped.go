package builtin

import "bytes"

// capped keeps the first bytes written to it, and calls full when there are more. What comes after is dropped, so that
// the writer is not held up. It is written to by one goroutine at a time.
type capped struct {
	kept bytes.Buffer // a field, since its ReadFrom would go round the cap
	most int
	full func()
	cut  bool
}

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	keep := min(len(p), c.most-c.kept.Len())
	c.kept.Write(p[:keep])
	if keep < len(p) && !c.cut {
		c.cut = true
		c.full()
	}
	return len(p), nil
}
