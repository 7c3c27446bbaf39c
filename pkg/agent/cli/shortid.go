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

	"github.com/countersign/countersign/internal/web/api"
)

// idLength is the length of run and approval ids.
const idLength = 26

// idArgsOf returns the ids of a command line, in order.
func idArgsOf(parsed *kong.Context) (all []idArg) {
	values := slices.Clone(parsed.Selected().Positional)
	for _, f := range parsed.Flags() {
		values = append(values, f.Value)
	}
	for _, v := range values {
		kind := v.Tag.Get("id")
		switch at := v.Target; {
		case kind == "":
		case at.Kind() == reflect.Slice:
			for i := range at.Len() {
				all = append(all, idArg{kind, at.Index(i)})
			}
		case at.String() != "":
			all = append(all, idArg{kind, at})
		}
	}
	return all
}

func (id idArg) isComplete() bool { return id.kind != "call" && len(id.value.String()) >= idLength }

// completeIDs replaces the beginnings of ids by whole ids. A beginning without a match stays, and the command refuses
// it.
func (p *program) completeIDs(ctx context.Context) error {
	if !slices.ContainsFunc(p.idArgs, func(id idArg) bool { return !id.isComplete() }) {
		return nil
	}
	if _, err := os.Stat(p.home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return p.withSession(ctx, false, func(s *session) error {
		run := ""
		for _, id := range p.idArgs {
			if err := s.completeID(ctx, id, run); err != nil {
				return err
			}
			if id.kind == "run" {
				run = id.value.String()
			}
		}
		return nil
	})
}

func (s *session) completeID(ctx context.Context, id idArg, run string) error {
	if id.isComplete() {
		return nil
	}
	all, err := s.listIDs(ctx, id.kind, run)
	if err != nil {
		return err
	}
	short := id.value.String()
	if slices.Contains(all, short) {
		return nil
	}
	fits := slices.DeleteFunc(all, func(whole string) bool { return !strings.HasPrefix(whole, short) })
	switch {
	case len(fits) == 1:
		id.value.SetString(fits[0])
	case len(fits) > 1:
		some := strings.Join(fits[:min(len(fits), 5)], ", ")
		return usageErrorf("%s %s: more than one id begins like this: %s", id.kind, line(short), line(some))
	}
	return nil
}

// listIDs returns all ids of a kind.
func (s *session) listIDs(ctx context.Context, kind, run string) (ids []string, err error) {
	switch kind {
	case "call":
		r, err := callAPI(ctx, s, func(c *api.Client) (api.Run, error) { return c.Run(ctx, run) })
		if err != nil {
			return nil, err
		}
		for _, c := range r.Calls {
			ids = append(ids, c.ID)
		}
	case "approval":
		all, err := s.listAllApprovals(ctx)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			ids = append(ids, a.ID)
		}
	default:
		heads, err := s.listRuns(ctx, api.RunQuery{})
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			ids = append(ids, h.ID)
		}
	}
	return ids, nil
}
