// Command jaw runs one scenario with one thing that goes wrong, and says what is not as wanted. It is built with the mutations of
// package teeth laid over it.
//
//	jaw SCENARIO.txtar [WITH]
//
// WITH is "" for nothing, "crash" for a crash before and after every call of a port, each in a run of its own, or a fault at one call:
// "F4@table.Write ^J#0000000002" is F4 at the first call of that port whose subject has that in it, with ^ at its beginning, and with " #2" behind
// it at the second.
// It exits with 1 where something is not as wanted, and with 2 where it cannot run.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign/countersign/internal/scenario"
)

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: jaw SCENARIO.txtar [WITH]")
		os.Exit(2)
	}
	with := ""
	if len(os.Args) == 3 {
		with = os.Args[2]
	}
	found, err := run(os.Args[1], with)
	if err != nil {
		fmt.Fprintln(os.Stderr, "jaw:", err)
		os.Exit(2)
	}
	for _, line := range found {
		fmt.Println(line)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// run gives what is not as wanted, a line each.
func run(file, with string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Load(filepath.Base(file), data)
	if err != nil {
		return nil, err
	}
	switch with {
	case "":
		return said("", s.Run(scenario.Options{}).Failures), nil
	case "crash":
		r := s.Crash()
		found := said("", r.Plain.Failures)
		for _, f := range r.Failures {
			found = append(found, said(fmt.Sprintf("%s, %s: ", string(f.Kind), f.At), f.Failures)...)
		}
		return found, nil
	default:
		return atOnePoint(s, with)
	}
}

func said(at string, failures []scenario.Failure) []string {
	var lines []string
	for _, f := range failures {
		lines = append(lines, at+f.String())
	}
	return lines
}
