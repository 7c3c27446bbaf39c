package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strconv"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/ids"
	"github.com/countersign/countersign/pkg/agent/show"
	webpages "github.com/countersign/countersign/pkg/agent/web"
)

// newConsole makes the console of an engine. What it reads it reads as any client does; what it decides goes to the desk.
func newConsole(e *engine, b api.Backend, token string, as agent.Principal) *webpages.Console {
	draw := ids.System(e.p.clock)
	showing := consoleShowing()
	return &webpages.Console{
		Pages: &webpages.Pages{
			Desk: b.Desk, Show: showing, Clock: e.p.clock, Log: b.Log,
			Get: func(ctx context.Context, tenant, id string) (approval.Approval, error) {
				return approval.Get(ctx, b.Table, tenant, id)
			},
		},
		Tenant: local.Tenant, As: as, Read: e.client(as), Agents: e.p.registry.Agents, Token: token, Start: draw.Token()[:10], Key: draw.Token(),
		Conversation: func(ctx context.Context, run string) ([]agent.Spoken, error) {
			l, err := b.Journal.Load(ctx, local.Tenant, run)
			if err != nil {
				return nil, err
			}
			return b.Journal.Conversation(ctx, local.Tenant, &l.State)
		},
		Arguments: func(_ context.Context, _, _ string, raw []byte) ([]show.Argument, error) { return argumentsOf(raw) },
	}
}

// odd is what stands for a character that cannot be seen, in what line and text give.
var odd = regexp.MustCompile(`\\[ux]\{[0-9A-F]+\}|\\\{[^}]*\}|\\n`)

// pieces is an escaped text, in which what was put in place of something else is told apart.
func pieces(escaped string) show.Text {
	var t show.Text
	from := 0
	for _, at := range odd.FindAllStringIndex(escaped, -1) {
		if at[0] > from {
			t = append(t, show.Span{Text: escaped[from:at[0]]})
		}
		t = append(t, show.Span{Text: escaped[at[0]:at[1]], Kind: show.Escape})
		from = at[1]
	}
	if from < len(escaped) {
		t = append(t, show.Span{Text: escaped[from:]})
	}
	return t
}

// consoleShowing is what the console shows of requests: what the terminal does.
func consoleShowing() webpages.Showing {
	foreign := func(s string) show.Text { return pieces(line(s)) }
	return webpages.Showing{Text: foreign, Of: func(_ context.Context, a approval.Approval) (show.Request, error) {
		r := show.Request{ID: a.ID, Status: string(a.Status), Title: foreign("Run " + a.Tools[0]), Note: foreign(a.RuleNote), Bytes: len(a.Args)}
		for _, f := range [][2]string{
			{"Agent", a.Agent}, {"Effect", risk[a.Effect]}, {"Run", a.Run}, {"Who may decide", deciders(a.Approvers, a.Above)}, {"Policy", a.RuleNote},
		} {
			if f[1] != "" {
				r.Facts = append(r.Facts, show.Fact{Name: f[0], Label: f[0], Value: foreign(f[1])})
			}
		}
		var err error
		if a.Kind != approval.KindTools {
			r.Arguments, err = argumentsOf(a.Args)
		}
		for _, p := range a.Permissions {
			t := show.Tool{Name: foreign(p.Tool)}
			for _, c := range p.Calls {
				lines, wrong := argumentsOf(c.Args)
				if wrong != nil {
					err = wrong
				}
				t.Calls = append(t.Calls, lines)
			}
			if a.Kind == approval.KindTools {
				r.Tools = append(r.Tools, t)
			}
		}
		if a.Ticket != nil {
			r.Question = foreign(a.Ticket.Message)
		}
		for _, w := range a.Thread {
			r.History = append(r.History, show.Event{At: w.At, Who: foreign(w.By), What: "question", Note: foreign(w.Text)})
		}
		return r, err
	}}
}

// argumentsOf are the lines of a JSON value, in stored order, with every number's own digits.
func argumentsOf(raw []byte) ([]show.Argument, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	l := &lister{d: json.NewDecoder(bytes.NewReader(raw))}
	l.d.UseNumber()
	err := l.value(0, nil)
	return l.out, err
}

// lister lists the lines of a JSON value.
type lister struct {
	d     *json.Decoder
	out   []show.Argument
	begun bool
}

// value lists the value that comes next. An object is no line of its own where it is all there is.
func (l *lister) value(depth int, key show.Text) error {
	t, err := l.d.Token()
	if err != nil {
		return err
	}
	a, first := show.Argument{Depth: depth, Key: key}, !l.begun
	l.begun = true
	switch v := t.(type) {
	case json.Delim:
		if v == '{' && first {
			return l.members(depth, v)
		}
		if !l.d.More() {
			a.Value = show.Text{{Text: map[json.Delim]string{'{': "{}", '[': "[]"}[v]}}
		}
		a.Kind = map[json.Delim]string{'{': "object", '[': "array"}[v]
		l.out = append(l.out, a)
		return l.members(depth+1, v)
	case string:
		a.Kind, a.Value = "string", pieces(text(v))
	case json.Number:
		a.Kind, a.Value = "number", show.Text{{Text: v.String()}}
	case bool:
		a.Kind, a.Value = "boolean", show.Text{{Text: strconv.FormatBool(v)}}
	default:
		a.Kind, a.Value = "null", show.Text{{Text: "null"}}
	}
	l.out = append(l.out, a)
	return nil
}

func (l *lister) members(depth int, of json.Delim) error {
	for n := 0; l.d.More(); n++ {
		name := "[" + strconv.Itoa(n) + "]"
		if of == '{' {
			key, err := l.d.Token()
			if err != nil {
				return err
			}
			name = key.(string) // the decoder lets only strings be keys
		}
		if err := l.value(depth, pieces(line(name))); err != nil {
			return err
		}
	}
	_, err := l.d.Token()
	return err
}
