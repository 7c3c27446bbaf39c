package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/web/api"
)

// idLength is how long the ids of runs and approvals are.
const idLength = 26

// typedIDs are the ids of a command line, in order.
func typedIDs(parsed *kong.Context) (all []typedID) {
	for _, v := range parsed.Selected().Positional {
		all = append(all, idsIn(v)...)
	}
	for _, f := range parsed.Flags() {
		all = append(all, idsIn(f.Value)...)
	}
	return all
}

func idsIn(v *kong.Value) (all []typedID) {
	kind := v.Tag.Get("id")
	switch at := v.Target; {
	case kind == "":
	case at.Kind() == reflect.Slice:
		for i := range at.Len() {
			all = append(all, typedID{kind, at.Index(i)})
		}
	case at.String() != "":
		all = append(all, typedID{kind, at})
	}
	return all
}

func (id typedID) isWhole() bool { return id.kind != "call" && len(id.at.String()) >= idLength }

// completeIDs puts whole ids in the place of their beginnings, before the command looks at them. What begins no id
// stays as it is, for the command to say so.
func (p *program) completeIDs(ctx context.Context) error {
	if !slices.ContainsFunc(p.ids, func(id typedID) bool { return !id.isWhole() }) {
		return nil
	}
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.with(ctx, false, func(s *session) error {
		run := ""
		for _, id := range p.ids {
			if err := s.complete(ctx, id, run); err != nil {
				return err
			}
			if id.kind == "run" {
				run = id.at.String()
			}
		}
		return nil
	})
}

func (s *session) complete(ctx context.Context, id typedID, run string) error {
	if id.isWhole() {
		return nil
	}
	all, err := s.idsOf(ctx, id.kind, run)
	if err != nil {
		return err
	}
	short := id.at.String()
	if slices.Contains(all, short) {
		return nil
	}
	fits := slices.DeleteFunc(all, func(whole string) bool { return !strings.HasPrefix(whole, short) })
	switch {
	case len(fits) == 1:
		id.at.SetString(fits[0])
	case len(fits) > 1:
		some := strings.Join(fits[:min(len(fits), 5)], ", ")
		return usage("%s %s: more than one id begins like this: %s", id.kind, line(short), line(some))
	}
	return nil
}

// idsOf lists the ids there are of a kind.
func (s *session) idsOf(ctx context.Context, kind, run string) (ids []string, err error) {
	switch kind {
	case "call":
		r, err := call(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, run) })
		if err != nil {
			return nil, err
		}
		for _, c := range r.Calls {
			ids = append(ids, c.ID)
		}
	case "approval":
		for _, status := range approval.Statuses() {
			page, err := s.approvals(ctx, approval.Query{Status: status})
			if err != nil {
				return nil, err
			}
			for _, a := range page {
				ids = append(ids, a.ID)
			}
		}
	default:
		heads, err := s.runs(ctx, api.RunQuery{})
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			ids = append(ids, h.ID)
		}
	}
	return ids, nil
}
