// Command run sweeps the corpus: `make sweep`.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/sweep"
)

func main() {
	dir := flag.String("scenarios", "scenarios", "the folder of scenarios")
	only := flag.String("only", "", "the scenarios to sweep, separated by commas; empty = the corpus")
	lanes := flag.String("lanes", "", "a part of the names of the lanes to go; empty = all")
	workers := flag.Int("workers", 2, "scenarios at once")
	limit := flag.Int("limit", 0, "runs at most of each scenario in each lane; 0 = no limit")
	most := flag.Int("print", 5, "findings to print of each scenario in each lane")
	report := flag.String("report", "", "a Markdown file to write the results into, between its lines "+begins+" and "+ends+"; empty = none")
	flag.Parse()
	debug.SetGCPercent(800) // every run is a short-lived simulation
	began := clock.System().Now()
	failed := 0
	var total sweep.Count
	var results []result
	for _, lane := range sweep.Lanes() {
		if !strings.Contains(lane.Name, *lanes) {
			continue
		}
		if *only != "" {
			lane.Scenarios = strings.Split(*only, ",")
		}
		fmt.Printf("%s: %s\n", lane.Name, lane.About)
		lane.Scope.Limit = *limit
		since := clock.System().Now()
		count, n, err := sweepAll(*dir, lane.Scenarios, lane.Scope, *workers, *most)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		failed += n
		total.Add(count)
		results = append(results, result{lane, count, n, clock.System().Now().Sub(since)})
	}
	took := clock.System().Now().Sub(began)
	fmt.Printf("all: %s, %d failures, %.0f s\n", total, failed, took.Seconds())
	if *report != "" {
		if err := write(*report, section(results, total, failed, took)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// outcome is the result of one scenario in one lane.
type outcome struct {
	name  string
	count sweep.Count
	found []sweep.Finding
	took  time.Duration
	err   error
}

func sweepAll(dir string, names []string, scope sweep.Scope, workers, most int) (total sweep.Count, failed int, err error) {
	jobs, done := make(chan string), make(chan outcome)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for name := range jobs {
				done <- one(dir, name, scope)
			}
		})
	}
	go func() {
		for _, name := range names {
			jobs <- name
		}
		close(jobs)
		all.Wait()
		close(done)
	}()
	for o := range done {
		if o.err != nil {
			err = cmp.Or(err, o.err)
			continue
		}
		fmt.Printf("  %-28s %s, %d failures, %.1f s\n", o.name, o.count, len(o.found), o.took.Seconds())
		for _, f := range o.found[:min(most, len(o.found))] {
			fmt.Printf("    FAIL %s\n", f)
		}
		total.Add(o.count)
		failed += len(o.found)
	}
	return total, failed, err
}

func one(dir, name string, scope sweep.Scope) outcome {
	began := clock.System().Now()
	s, err := sweep.Load(dir, name)
	if err != nil {
		return outcome{name: name, err: err}
	}
	count, found := sweep.Explore(s, scope)
	slices.SortStableFunc(found, func(a, b sweep.Finding) int { return cmp.Compare(len(a.Script.String()), len(b.Script.String())) })
	return outcome{name: name, count: count, found: found, took: clock.System().Now().Sub(began)}
}
