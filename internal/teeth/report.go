package teeth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/pkg/agent/clock"
)

// Report is what became of all cases.
type Report struct {
	Built    time.Duration // how long building took
	With     []Outcome     // of each case of each mutation, in order
	Without  []Outcome     // of each case that there is, with no mutation working
	Mutation []Mutation
}

// atOnce is how many cases run beside each other.
const atOnce = 2

// Bite builds the mutations and runs all their cases, with the mutation and without any. The error is that something cannot be built or run.
func Bite(ctx context.Context, root, dir string, all []Mutation) (*Report, error) {
	c := clock.System()
	begun := c.Now()
	b, err := Build(ctx, root, dir, all)
	if err != nil {
		return nil, err
	}
	r := &Report{Built: c.Now().Sub(begun), Mutation: all}
	seen := map[string]bool{}
	for _, m := range all {
		for _, c := range m.Cases {
			r.With = append(r.With, Outcome{Mutation: m.Name, Case: c})
			if !seen[c.String()] {
				seen[c.String()] = true
				r.Without = append(r.Without, Outcome{Case: c})
			}
		}
	}
	return r, errors.Join(b.each(ctx, r.With), b.each(ctx, r.Without))
}

// each runs a list of cases in place.
func (b *Bench) each(ctx context.Context, list []Outcome) error {
	errs := make([]error, len(list))
	next := make(chan int)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				list[i], errs[i] = b.Run(ctx, list[i].Mutation, list[i].Case)
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	workers.Wait()
	return errors.Join(errs...)
}

// Err says which mutations survived a case, and which cases fail without one; nil = all is as it has to be.
func (r *Report) Err() error {
	var errs []error
	for _, o := range r.With {
		switch {
		case !o.Failed:
			errs = append(errs, fmt.Errorf("%s survives %s", o.Mutation, o.Case))
		case o.Line() == "":
			errs = append(errs, fmt.Errorf("%s fails %s for another reason, want %q:\n%s", o.Mutation, o.Case, o.Case.Wants, o.Said))
		}
	}
	for _, o := range r.Without {
		if o.Failed {
			errs = append(errs, fmt.Errorf("without a mutation, %s fails:\n%s", o.Case, o.Said))
		}
	}
	return errors.Join(errs...)
}

// String is the report as a table and its counts.
func (r *Report) String() string {
	var b strings.Builder
	var took time.Duration
	for _, o := range r.With {
		m := r.of(o.Mutation)
		line := o.Line()
		if line == "" {
			line = "SURVIVED"
		}
		took += o.Took
		fmt.Fprintf(&b, "%-28s %-8s %5.2f s  %s\n%38s  %s\n", o.Mutation, m.Of, o.Took.Seconds(), o.Case, "", short(line, o.Case.Wants))
	}
	for _, o := range r.Without {
		took += o.Took
	}
	fmt.Fprintf(&b, "%d mutations, %d cases with one and %d without; built in %.1f s, run in %.1f s\n",
		len(r.Mutation), len(r.With), len(r.Without), r.Built.Seconds(), took.Seconds())
	return b.String()
}

func (r *Report) of(name string) Mutation {
	for _, m := range r.Mutation {
		if m.Name == name {
			return m
		}
	}
	return Mutation{}
}

// short is a line, or what of a long one stands around what is wanted of it.
func short(line, wants string) string {
	const most, before = 160, 60
	if len(line) <= most {
		return line
	}
	from := max(0, strings.Index(line, wants)-before)
	return strings.ToValidUTF8(line[from:min(len(line), from+most)], "") + "..."
}
