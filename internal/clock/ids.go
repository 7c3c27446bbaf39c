package clock

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// IDs draws what is random: writer ids, keys, task tokens, jitter. Nothing else does, so that a scenario can draw the
// same every time. Safe for concurrent use.
type IDs struct {
	clock Clock
	read  func([]byte)
}

// NewIDs draws from the operating system.
func NewIDs(c Clock) *IDs {
	// crypto/rand.Read never fails: it ends the process instead
	return &IDs{clock: c, read: func(b []byte) { _, _ = rand.Read(b) }}
}

// SeededIDs draws the same sequence for the same seed: for scenarios and tests, never for anything that must be secret.
func SeededIDs(c Clock, seed uint64) *IDs {
	var mu sync.Mutex
	return &IDs{clock: c, read: func(b []byte) {
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

var idEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// Writer is a random id of one invocation: ten characters, 50 bits.
func (s *IDs) Writer() string { return s.text(10) }

// Token is a random task token: 52 characters, 256 bits.
func (s *IDs) Token() string { return s.text(52) }

// Code is eight random digits, for a person to type.
func (s *IDs) Code() string {
	var b [8]byte
	s.read(b[:])
	return fmt.Sprintf("%08d", binary.LittleEndian.Uint64(b[:])%100_000_000)
}

func (s *IDs) text(chars int) string {
	b := make([]byte, (chars*5+7)/8)
	s.read(b)
	return strings.ToLower(idEncoding.EncodeToString(b)[:chars])
}

// Fill fills b with random bytes.
func (s *IDs) Fill(b []byte) { s.read(b) }

// Key is a ULID.
func (s *IDs) Key() string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(s.clock.Now())) // only a year past 10889 has none
	s.read(id[6:])
	return id.String()
}

// Jitter draws a duration from 0 to limit, inclusive.
func (s *IDs) Jitter(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	var b [8]byte
	s.read(b[:])
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % (uint64(limit) + 1))
}
