package main

import (
	"context"
	"slices"
	"testing"

	"github.com/countersign/countersign/internal/clock"
)

func BenchmarkW(b *testing.B) {
	x := &bench{clock: clock.System()}
	for b.Loop() {
		if _, err := x.iterations(context.Background(), "W", 1000, 1); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPar and BenchmarkWait say besides what the quickest quarter took: on a shared machine the rest measures the others.
func BenchmarkPar(b *testing.B) { (&bench{clock: clock.System()}).quickest(b, (*bench).parallel) }

func BenchmarkWait(b *testing.B) { (&bench{clock: clock.System()}).quickest(b, (*bench).wait) }

func (b *bench) quickest(t *testing.B, work func(*bench, context.Context) (measurement, error)) {
	var ours, floors []float64
	for t.Loop() {
		m, err := work(b, context.Background())
		if err != nil {
			t.Fatal(err)
		}
		floor, err := b.floor(context.Background(), 20)
		if err != nil {
			t.Fatal(err)
		}
		ours, floors = append(ours, m.Micros), append(floors, micros(floor)/20)
	}
	slices.Sort(ours)
	slices.Sort(floors)
	at := len(ours) / 4
	t.ReportMetric(ours[at], "us-quarter")
	t.ReportMetric(floors[at], "floor-us-quarter")
	t.ReportMetric(ours[at]/floors[at], "ratio-quarter")
}
