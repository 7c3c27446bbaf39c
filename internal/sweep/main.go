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

	"github.com/countersign/countersign/internal/clock"
)

func main() {
	dir := flag.String("scenarios", "scenarios", "the folder of scenarios")
	only := flag.String("only", "", "the scenarios to sweep, separated by commas; empty = the corpus")
	lanes := flag.String("lanes", "", "a part of the names of the lanes to go; empty = all")
	workers := flag.Int("workers", 2, "scenarios at once")
	limit := flag.Int("limit", 0, "runs at most of each scenario in each lane; 0 = no limit")
	most := flag.Int("print", 5, "findings to print of each scenario in each lane")
	flag.Parse()
	debug.SetGCPercent(800) // every run is a short-lived simulation
	began := clock.System().Now()
	failed := 0
	var total Count
	// The results are the Markdown table of docs/reliability.md.
	table := "| lane | scenarios | I/O points | runs | left early | nothing to do | moved by a sweep | failures |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|\n"
	addRow := func(l Lane, c Count, failed int) {
		table += fmt.Sprintf("| *%s*: %s | %d | %d | %d | %d | %d | %d | %d |\n", l.Name, l.About,
			len(l.Scenarios), c.Points, c.Runs, c.Pruned, c.Ineffective, c.Swept, failed)
	}
	for _, lane := range Lanes() {
		if !strings.Contains(lane.Name, *lanes) {
			continue
		}
		if *only != "" {
			lane.Scenarios = strings.Split(*only, ",")
		}
		fmt.Printf("%s: %s\n", lane.Name, lane.About)
		lane.Scope.Limit = *limit
		count, n, err := sweepAll(*dir, lane.Scenarios, lane.Scope, *workers, *most)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		failed += n
		total.Add(count)
		addRow(lane, count, n)
	}
	fmt.Printf("all: %s, %d failures, %.0f s\n", total, failed, clock.System().Now().Sub(began).Seconds())
	addRow(Lane{Name: "all"}, total, failed)
	fmt.Print("\n", table)
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
