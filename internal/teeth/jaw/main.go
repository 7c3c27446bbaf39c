// Command jaw runs one scenario with what goes wrong and who acts meanwhile, and says what is not as wanted. It is built with the mutations of
// package teeth laid over it.
//
//	jaw SCENARIO.txtar [WITH]
//	jaw -explore KIND,...,DEED,... SCENARIO.txtar
//
// WITH is "" for nothing, "crash" for a crash before and after every call of a port, each in a run of its own, or faults and deeds, separated by
// commas, in the order of the calls at which they are. "F4@table.Write ^J#0000000002" is F4 at the first call of that port whose subject has that
// in it, with ^ at its beginning, and with " #2" behind it at the second. "F5/3@..." is F5 with 3 more, "message@..." a message right before the call, and "approve/lost@..."
// an approval by somebody who does not come back. See packages fault and scenario.
//
// With -explore, every fault of these kinds and every one of these deeds is tried at every call, and so is each such fault with each such deed.
//
// It exits with 1 where something is not as wanted, and with 2 where it cannot run.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/countersign/countersign/internal/scenario"
)

func main() {
	kinds := flag.String("explore", "", "try these kinds of faults and these deeds everywhere")
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		fmt.Fprintln(os.Stderr, "usage: jaw SCENARIO.txtar [WITH]\n       jaw -explore KIND,...,DEED,... SCENARIO.txtar")
		os.Exit(2)
	}
	found, err := run(flag.Arg(0), flag.Arg(1), *kinds)
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
func run(file, with, kinds string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Load(filepath.Base(file), data)
	if err != nil {
		return nil, err
	}
	switch {
	case kinds != "":
		return explore(s, kinds)
	case with == "":
		return said("", bad(s.Run(scenario.Options{}))), nil
	case with == "crash":
		r := s.Crash()
		found := said("", bad(r.Plain))
		for _, f := range r.Failures {
			found = append(found, said(fmt.Sprintf("%s, %s: ", string(f.Kind), f.At), f.Failures)...)
		}
		return found, nil
	default:
		return disturbed(s, with)
	}
}

// bad is everything that a run has done wrong.
func bad(r scenario.Result) []scenario.Failure { return slices.Concat(r.Violations, r.Failures) }

func said(at string, failures []scenario.Failure) []string {
	var lines []string
	for _, f := range failures {
		lines = append(lines, at+f.String())
	}
	return lines
}
