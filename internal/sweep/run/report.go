package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/sweep"
)

// The markers in a report between which a sweep writes.
const (
	begins = "<!-- written by make sweep -->"
	ends   = "<!-- end of what make sweep writes -->"
)

// result is the result of a lane.
type result struct {
	lane   sweep.Lane
	count  sweep.Count
	failed int
	took   time.Duration
}

// section formats the results as Markdown.
func section(results []result, total sweep.Count, failed int, took time.Duration) string {
	var b strings.Builder
	b.WriteString("| lane | scenarios | I/O points | runs | left early | nothing to do | moved by a sweep | failures | seconds |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	row := func(name string, scenarios string, c sweep.Count, failed int, took time.Duration) {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %.0f |\n", name, scenarios, c.Points, c.Runs, c.Pruned, c.Ineffective, c.Swept, failed, took.Seconds())
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
