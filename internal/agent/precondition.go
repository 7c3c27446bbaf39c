package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Precondition is what a call depends on: a call of a tool that reads. What it gives is shown to whoever is asked about the call, and read again
// right before the call runs; where it has changed, people are asked anew.
type Precondition struct {
	Tool    string          `json:"tool"`              // original name, of the same agent, of effect read
	Args    json.RawMessage `json:"args,omitempty"`    // an object; objects that are {"args": "/pointer"} take the value there of the call's arguments
	Compare []string        `json:"compare,omitempty"` // JSON Pointers: these values of what it gives count and are shown, and nothing else; none = all of it
}

// MaxChecked is how much of what a precondition gives people are shown, in bytes. More is none that they could read.
const MaxChecked = 16 << 10

// Checked is what a precondition gave when people were asked.
type Checked struct {
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	Content string          `json:"content"` // its text; with Compare an object of these values by pointer, without those that are not there
	IsError bool            `json:"isError,omitempty"`
	At      time.Time       `json:"at"`
	Was     *Was            `json:"was,omitempty"` // what it gave when people were last asked about the call, which is why they are asked again; nil = this is the first time
}

// Was is what a precondition gave before.
type Was struct {
	Args    json.RawMessage `json:"args"`
	Content string          `json:"content"`
	IsError bool            `json:"isError,omitempty"`
	At      time.Time       `json:"at"`
}

// same reports whether both gave the same of the same.
func (k Checked) same(o Checked) bool {
	return k.Tool == o.Tool && string(k.Args) == string(o.Args) && k.IsError == o.IsError && canonicalText(json.RawMessage(k.Content)) == canonicalText(json.RawMessage(o.Content))
}

// digest is of all that is shown of it.
func (k *Checked) digest() string {
	if k == nil {
		return ""
	}
	of := map[string]any{"tool": k.Tool, "args": string(k.Args), "content": k.Content, "isError": k.IsError, "at": k.At.UTC().Format(time.RFC3339Nano)}
	if k.Was != nil {
		of["was"] = map[string]any{"args": string(k.Was.Args), "content": k.Was.Content, "isError": k.Was.IsError, "at": k.Was.At.UTC().Format(time.RFC3339Nano)}
	}
	return hashCanonical(of)
}

// Reading is a precondition's call that is owed before a call goes the way of its gate.
type Reading struct {
	Tool    ToolSpec
	Args    json.RawMessage
	compare []string
}

// MustRead is what has to be read before c goes the way of g: when people are to be asked about it, and when it is to run because they have
// approved it. False where nothing has. An error says why it cannot be read, and is fit for the model.
func MustRead(d *Definition, s *AgentState, c Call, g Gate) (Reading, bool, error) {
	asks := g.Suspend != nil && g.Suspend.For == ""
	runs := g.Run && c.Grant != nil && !c.Grant.Tool && !c.Grant.Consumed && c.Checked != nil
	t, known := d.Tool(c.Tool)
	if !known || t.Precondition == nil || !asks && !runs {
		return Reading{}, false, nil
	}
	r := Reading{compare: t.Precondition.Compare}
	r.Tool, known = d.Tool(t.Precondition.Tool)
	switch {
	case !known || s.Disabled(r.Tool):
		return r, true, errors.New("the agent has no tool " + t.Precondition.Tool)
	case r.Tool.Effect != EffectRead:
		return r, true, errors.New(r.Tool.Name + " does more than read")
	}
	var err error
	if r.Args, err = readingArguments(t.Precondition.Args, c.Input); err != nil {
		return r, true, err
	}
	if DecideIn(d, s, r.Tool, r.Args).Verdict == VerdictDeny {
		return r, true, errors.New("policy denies " + r.Tool.Name)
	}
	return r, true, nil
}

// readingArguments fills a template with values of a call's arguments.
func readingArguments(template, input json.RawMessage) (json.RawMessage, error) {
	if template == nil {
		return json.RawMessage(`{}`), nil
	}
	compact, err := CompactJSON(template, JSONLimits{})
	if err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	filled, err := filledUndo(compact, func(p undoPlace) (json.RawMessage, error) {
		v, found, err := Lookup(input, p.pointer)
		if err != nil || !found || p.from != "args" {
			return nil, fmt.Errorf("the arguments have nothing at %.100q", p.pointer)
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	return CompactJSON(filled, JSONLimits{})
}

// Checked is what the reading gave at that time, as people are shown it. The error is fit for the model.
func (r Reading) Checked(res ToolResultData, at time.Time) (*Checked, error) {
	k := &Checked{Tool: r.Tool.Name, Args: r.Args, Content: res.Content, IsError: res.IsError, At: at.UTC().Truncate(time.Millisecond)}
	if len(r.compare) > 0 && !res.IsError {
		whole, err := CompactJSON(json.RawMessage(res.Content), JSONLimits{Bytes: 2 * MaxResult})
		if err != nil {
			return nil, errors.New(r.Tool.Name + " gave no JSON to compare")
		}
		values := []byte{'{'}
		for _, pointer := range r.compare {
			v, found, err := Lookup(whole, pointer)
			if err != nil || !found {
				continue
			}
			if len(values) > 1 {
				values = append(values, ',')
			}
			values = append(append(appendCanonicalString(values, pointer), ':'), v...)
		}
		k.Content = string(append(values, '}'))
	}
	if len(k.Content) > MaxChecked {
		return nil, fmt.Errorf("%s gave more than the %d bytes that people are shown", r.Tool.Name, MaxChecked)
	}
	return k, nil
}

// GateChecked is g now that k was read: who is asked is shown it, and what they approved runs if it still is so. Where it is not they are asked
// again, unless they have been too often.
func GateChecked(d *Definition, s *AgentState, c Call, g Gate, k *Checked, now time.Time) Gate {
	if g.Run && c.Checked.same(*k) {
		return g
	}
	if g.Run && d.Limits.Asks > 0 && c.Asks >= d.Limits.Asks {
		return refuse(c, WhyVoided, d.word(wordAskedOften, map[string]any{"Tool": c.Name, "Asks": c.Asks}), g.Rule)
	}
	if old := c.Checked; old != nil && !old.same(*k) {
		k.Was = &Was{Args: old.Args, Content: old.Content, IsError: old.IsError, At: old.At}
	}
	c.Checked = k
	anew := AskFor(d, s, c, g.Rule, now)
	ask := g.Suspend
	if ask == nil {
		ask = anew
		ask.Why = WhyStateChanged
	}
	ask.Checked, ask.Digest = k, anew.Digest
	return Gate{Suspend: ask, Rule: g.Rule}
}

// wordUnread is the key of what a model is told of a call whose precondition could not be read.
const wordUnread = "preconditionUnread"

// Unread ends a call whose precondition cannot be read.
func Unread(d *Definition, c Call, why error) *CallFinished {
	t, _ := d.Tool(c.Tool)
	reads := ""
	if t.Precondition != nil {
		reads = t.Precondition.Tool
	}
	return &CallFinished{Call: c.ID, IsError: true, Reason: WhyPrecondition, Content: d.word(wordUnread, map[string]any{"Tool": c.Name, "Reads": reads, "Problem": Bounded(why.Error())})}
}

// preconditions wants what calls depend on to be read by tools of the agent.
func (c *checker) preconditions(d *Definition) {
	for i, t := range d.Tools {
		if t.Precondition == nil {
			continue
		}
		at := fmt.Sprintf("tools[%d].precondition", i)
		c.preconditionTool(at+".tool", d, t)
		if t.Precondition.Args != nil {
			if err := checkReadingArgs(t.Precondition.Args); err != nil {
				c.add(at+".args", err.Error())
			}
		}
		for j, p := range t.Precondition.Compare {
			if _, err := parsePointer(p); err != nil || p == "" || slices.Index(t.Precondition.Compare, p) != j {
				c.add(fmt.Sprintf("%s.compare[%d]", at, j), fmt.Sprintf("got %.100q, want a JSON Pointer such as /status, once", p))
			}
		}
	}
}

func (c *checker) preconditionTool(at string, d *Definition, of ToolSpec) {
	t, known := d.Tool(of.Precondition.Tool)
	switch {
	case of.Precondition.Tool == "":
		c.add(at, "got nothing, want the original name of a tool of this agent that reads")
	case !known && d.listsLater(of.Precondition.Tool):
	case !known || d.breaksLoop(of.Precondition.Tool):
		c.add(at, "got no tool of this agent, want the original name of one that reads")
	case t.Effect != EffectRead:
		c.add(at, fmt.Sprintf("got a tool of effect %s, want one of effect read", t.Effect))
	case t.AnsweredLater():
		c.add(at, "got a tool that is answered later, want one that reads at once")
	}
}

// checkReadingArgs is what is wrong with the template of a precondition's arguments.
func checkReadingArgs(template json.RawMessage) error {
	if err := checkUndoArgs(template); err != nil {
		return err
	}
	compact, err := CompactJSON(template, JSONLimits{})
	if err != nil {
		return err
	}
	_, err = filledUndo(compact, func(p undoPlace) (json.RawMessage, error) {
		if p.from != "args" {
			return nil, errors.New("got a value of a result, want those of the call's arguments: it has no result yet")
		}
		return json.RawMessage("null"), nil
	})
	return err
}
