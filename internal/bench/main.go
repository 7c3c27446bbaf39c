// Command bench measures the embedded engine against its floor: the same bytes, one conditional durable insert an
// iteration, on the same kind of store, in turn with the engine in the same run. docs/performance.md says what is
// measured and why.
//
// Beside that it says how large the functions' bootstraps are and how long they take to be ready.
//
// It prints one JSON line a measurement on standard output and a table for people on standard error. Times are medians
// of interleaved rounds and are quoted as ratios; counts come from a wrapper that counts every request.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/countersign/countersign/internal/clock"
)

// measurement is one JSON line.
type measurement struct {
	Work        string  `json:"work"`
	N           int     `json:"n"`
	Store       string  `json:"store"`
	Micros      float64 `json:"us_per_iter"`
	Floor       float64 `json:"floor_us"`
	Ratio       float64 `json:"ratio"`
	Bytes       float64 `json:"bytes_per_iter"`
	Writes      float64 `json:"writes_per_iter"`
	Reads       float64 `json:"reads_per_iter"`
	WCU         float64 `json:"wcu_per_iter"`
	Transitions float64 `json:"transitions_per_iter"`
}

func main() {
	rounds := flag.Int("rounds", 7, "interleaved rounds; the median counts")
	dir := flag.String("dir", "", "where stores are made; empty = the system's place for temporary files")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench: want no arguments and -rounds of 1 or more")
		os.Exit(2)
	}
	if err := runBench(context.Background(), os.Stdout, os.Stderr, *rounds, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runBench(ctx context.Context, out, people io.Writer, rounds int, dir string) (err error) {
	dir, err = os.MkdirTemp(dir, "countersign-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{clock: clock.System(), dir: dir}
	var all []measurement
	measure := func(floorWrites int, work func(context.Context) (measurement, error)) {
		if err == nil {
			var m measurement
			m, err = b.interleaved(ctx, rounds, floorWrites, work)
			all = append(all, m)
		}
	}
	for _, n := range []int{10, 50, 200, 1000} {
		measure(n, func(ctx context.Context) (measurement, error) { return b.iterations(ctx, "W", n, 1) })
	}
	measure(20, func(ctx context.Context) (measurement, error) { // one iteration of eight parallel calls
		return b.iterations(ctx, "W_par", 1, 8)
	})
	measure(20, b.wait)
	if err != nil {
		return err
	}
	boots, err := b.bootstraps(ctx)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	tw := tabwriter.NewWriter(people, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "work\tn\tus/iter\tfloor us\tratio\tbytes/iter\twrites\treads\tWCU\ttransitions\t")
	for _, m := range all {
		if err := lines.Encode(m); err != nil {
			return err
		}
		fmt.Fprintf(tw, "%s\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
			m.Work, m.N, m.Micros, m.Floor, m.Ratio, m.Bytes, m.Writes, m.Reads, m.WCU, m.Transitions)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(people, "\nratio = us/iter to one floor write (W commits twice: 2 is the least possible, 3.0 the "+
		"target); the delta is %d bytes of JSON an iteration.\n\n", deltaBytes)
	fmt.Fprintln(tw, "bootstrap\tMB\tms to ready\t")
	for _, m := range boots {
		if err := lines.Encode(m); err != nil {
			return err
		}
		fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t\n", m.Name, m.MB, m.Ready)
	}
	return tw.Flush()
}

// interleaved measures a work and its floor, of so many writes, in turn, so that a machine that changes speed changes
// both.
func (b *bench) interleaved(
	ctx context.Context, rounds, writes int, work func(context.Context) (measurement, error),
) (m measurement, err error) {
	var ours, floors []float64
	for range rounds {
		took, err := b.floor(ctx, writes)
		if err != nil {
			return m, err
		}
		if m, err = work(ctx); err != nil {
			return m, err
		}
		floors, ours = append(floors, micros(took)/float64(writes)), append(ours, m.Micros)
	}
	m.Micros, m.Floor = median(ours), median(floors)
	m.Ratio = m.Micros / m.Floor
	return m, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
