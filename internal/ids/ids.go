// Package ids draws what is random: writer ids, keys, task tokens, jitter. It is the only place that does, so that a
// scenario can draw the same every time.
package ids

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/countersign/countersign/internal/clock"
)

// Source draws random values. Safe for concurrent use.
type Source struct {
	clock clock.Clock
	read  func([]byte)
}

// System draws from the operating system.
func System(c clock.Clock) *Source {
	// crypto/rand.Read never fails: it ends the process instead
	return &Source{clock: c, read: func(b []byte) { _, _ = rand.Read(b) }}
}

// Seeded draws the same sequence for the same seed: for scenarios and tests, never for anything that must be secret.
func Seeded(c clock.Clock, seed uint64) *Source {
	var mu sync.Mutex
	return &Source{clock: c, read: func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		for i := range b {
			seed += 0x9e3779b97f4a7c15 // splitmix64
			z := seed
			z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
			z = (z ^ (z >> 27)) * 0x94d049bb133111eb
			b[i] = byte(z ^ (z >> 31))
		}
	}}
}

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// Writer is a random id of one invocation: ten characters, 50 bits.
func (s *Source) Writer() string { return s.text(10) }

// Token is a random task token: 52 characters, 256 bits.
func (s *Source) Token() string { return s.text(52) }

// Code is eight random digits, for a person to type.
func (s *Source) Code() string {
	var b [8]byte
	s.read(b[:])
	return fmt.Sprintf("%08d", binary.LittleEndian.Uint64(b[:])%100_000_000)
}

func (s *Source) text(chars int) string {
	b := make([]byte, (chars*5+7)/8)
	s.read(b)
	return strings.ToLower(encoding.EncodeToString(b)[:chars])
}

// Fill fills b with random bytes.
func (s *Source) Fill(b []byte) { s.read(b) }

// Key is a ULID.
func (s *Source) Key() string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(s.clock.Now())) // only a year past 10889 has none
	s.read(id[6:])
	return id.String()
}

// Jitter draws a duration from 0 to limit, inclusive.
func (s *Source) Jitter(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	var b [8]byte
	s.read(b[:])
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % (uint64(limit) + 1))
}
