// Command sweep runs scenarios with faults and interventions (docs/reliability.md, fault sweep): `make sweep`. Every
// call of a port is a point for a fault or an intervention, and the scenario is run again for each of them. A run ends
// early when it reaches a state that was explored with the same budget.
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
)

func main() {
	dir := flag.String("scenarios", "scenarios", "the folder of scenarios")
	only := flag.String("only", "", "the scenarios to sweep, separated by commas; empty = the corpus")
	lanes := flag.String("lanes", "", "a part of the names of the lanes to go; empty = all")
	workers := flag.Int("workers", 2, "scenarios at once")
	limit := flag.Int("limit", 0, "runs at most of each scenario in each lane; 0 = no limit")
	most := flag.Int("print", 5, "findings to print of each scenario in each lane")
	report := flag.String("report", "", "a Markdown file to write the results into, between its lines "+begins+" and "+
		ends+"; empty = none")
	flag.Parse()
	debug.SetGCPercent(800) // every run is a short-lived simulation
	began := clock.System().Now()
	failed := 0
	var total Count
	var results []result
	for _, lane := range Lanes() {
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

func sweepAll(dir string, names []string, scope Scope, workers, most int) (total Count, failed int, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	free := make(chan bool, workers)
	for _, name := range names {
		free <- true
		all.Go(func() {
			defer func() { <-free }()
			began := clock.System().Now()
			s, problem := Load(dir, name)
			if problem != nil {
				mu.Lock()
				defer mu.Unlock()
				err = cmp.Or(err, problem)
				return
			}
			count, found := Explore(s, scope)
			slices.SortStableFunc(found, func(a, b Finding) int {
				return cmp.Compare(len(a.Script.String()), len(b.Script.String()))
			})
			mu.Lock()
			defer mu.Unlock()
			fmt.Printf("  %-28s %s, %d failures, %.1f s\n", name, count, len(found), clock.System().Now().Sub(began).Seconds())
			for _, f := range found[:min(most, len(found))] {
				fmt.Printf("    FAIL %s\n", f)
			}
			total.Add(count)
			failed += len(found)
		})
	}
	all.Wait()
	return total, failed, err
}

// The markers in a report between which a sweep writes.
const (
	begins = "<!-- written by make sweep -->"
	ends   = "<!-- end of what make sweep writes -->"
)

// result is the result of a lane.
type result struct {
	lane   Lane
	count  Count
	failed int
	took   time.Duration
}

// section formats the results as Markdown.
func section(results []result, total Count, failed int, took time.Duration) string {
	var b strings.Builder
	b.WriteString("| lane | scenarios | I/O points | runs | left early | nothing to do | moved by a sweep | failures | " +
		"seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	row := func(name string, scenarios string, c Count, failed int, took time.Duration) {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %.0f |\n", name, scenarios, c.Points, c.Runs, c.Pruned,
			c.Ineffective, c.Swept, failed, took.Seconds())
	}
	for _, r := range results {
		row(fmt.Sprintf("*%s*: %s", r.lane.Name, r.lane.About), fmt.Sprint(len(r.lane.Scenarios)), r.count, r.failed, r.took)
	}
	row("all", "", total, failed, took)
	return b.String()
}

// write replaces the section of a file.
func write(file, section string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, begun := strings.Cut(string(data), begins+"\n")
	_, tail, ended := strings.Cut(rest, ends+"\n")
	if !begun || !ended {
		return fmt.Errorf("%s: want the lines %s and %s", file, begins, ends)
	}
	return os.WriteFile(file, []byte(head+begins+"\n\n"+section+"\n"+ends+"\n"+tail), 0o600)
}
