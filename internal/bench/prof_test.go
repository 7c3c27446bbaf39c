package main

import (
	"context"
	"testing"

	"github.com/countersign/countersign/pkg/agent/clock"
)

func BenchmarkW(b *testing.B) {
	x := &bench{clock: clock.System()}
	for b.Loop() {
		if _, _, err := x.iterations(context.Background(), 1000); err != nil {
			b.Fatal(err)
		}
	}
}
