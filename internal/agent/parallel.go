package agent

// Launches reports whether one more call of a tool may be entered beside calls of the same batch that are under way: busy are their tools,
// one for each call. What may not waits until one of them has ended; of those that wait, the first in the order of the request is asked first.
func Launches(d *Definition, busy []string, tool string) bool {
	if d.Limits.Parallel > 0 && len(busy) >= d.Limits.Parallel {
		return false
	}
	t, ok := d.Tool(tool)
	if !ok || t.Concurrency == 0 {
		return true
	}
	same := 0
	for _, name := range busy {
		if name == tool {
			same++
		}
	}
	return same < t.Concurrency
}
