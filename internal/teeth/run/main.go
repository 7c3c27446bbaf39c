// Command run builds the product with every mutation of package teeth laid over it and runs each mutation's cases, with the mutation and
// without any. It prints what caught each, and fails where one was not caught, or a case fails without one.
//
//	go run ./internal/teeth/run [NAME...]
//
// NAME is the beginning of the names of mutations; none = all.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/countersign/countersign/internal/teeth"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "teeth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) (err error) {
	dir, err := os.MkdirTemp("", "countersign-teeth-*")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.RemoveAll(dir); err == nil {
			err = gone
		}
	}()
	all := teeth.Mutations()
	if len(names) > 0 {
		all = named(all, names)
	}
	report, err := teeth.Bite(ctx, ".", dir, all)
	if report != nil {
		fmt.Print(report)
	}
	if err != nil {
		return err
	}
	return report.Err()
}

func named(all []teeth.Mutation, names []string) (list []teeth.Mutation) {
	for _, m := range all {
		for _, n := range names {
			if strings.HasPrefix(m.Name, n) {
				list = append(list, m)
				break
			}
		}
	}
	return list
}
