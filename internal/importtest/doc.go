// Package importtest holds the architecture as a test: which package may import which, what a Lambda binary may not
// link, and who alone may read time or draw a random number.
package importtest
