package lambdafn

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A function's directory is the document in its environment; a bad one fails at cold start, and nothing of it but keys is in the error.
func TestDirectoryOfAFunction(t *testing.T) {
	of := func(text string) func(string) string {
		return func(name string) string { return map[string]string{"COUNTERSIGN_DIRECTORY": text}[name] }
	}
	book, err := readDirectory(of(`{"tenants": {"acme": {"user:ana": {"email": "ana@example.com"}}}}`))
	require.NoError(t, err)
	p, found, err := book.Person(context.Background(), "acme", "user:ana")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "ana@example.com", p.Email)
	book, err = readDirectory(of(""))
	require.NoError(t, err)
	_, found, err = book.Person(context.Background(), "acme", "user:ana")
	require.NoError(t, err)
	require.False(t, found, "without one nobody is known")
	_, err = readDirectory(of(`{"tenants": {"acme": {"user:ana": {"email": "ana@example.com, ben@example.com"}}}}`))
	require.EqualError(t, err, "COUNTERSIGN_DIRECTORY: line 1: tenants.acme.user:ana.email: want one address, as ana@example.com")
}
