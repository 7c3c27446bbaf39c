package lambdafn

import (
	"fmt"

	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tools/callback"
	"github.com/countersign/countersign/internal/tools/keyring"
)

// The environment of callbacks: of functions/tool, which hands out their addresses, and of functions/api, which takes the answers.
const (
	envCallbackURL = "COUNTERSIGN_CALLBACK_URL" // where the API is reached from outside, as https://api.example.com; empty = no address is handed out
	envKeyRing     = "COUNTERSIGN_KEYRING"      // package keyring says what it looks like; empty = there are no callbacks
)

// readRing is the ring of a function; nil = it has none. No key is in its error.
func readRing(getenv func(string) string) (func() (*keyring.Ring, error), error) {
	text := getenv(envKeyRing)
	if text == "" {
		return nil, nil
	}
	ring, err := keyring.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envKeyRing, err)
	}
	return func() (*keyring.Ring, error) { return ring, nil }, nil
}

// callbacks are the addresses that a function hands out; nil = none.
func callbacks(getenv func(string) string) (runtime.Callbacks, error) {
	base := getenv(envCallbackURL)
	if base == "" {
		return nil, nil
	}
	ring, err := readRing(getenv)
	switch {
	case err != nil:
		return nil, err
	case ring == nil:
		return nil, fmt.Errorf("%s: want a ring of keys beside %s, got none", envKeyRing, envCallbackURL)
	}
	return callback.Addresses{Ring: ring, Base: func() string { return base }}, nil
}
