package agent

import "strings"

// RunDiagram is the run's transition table as a Mermaid stateDiagram-v2.
func RunDiagram() string {
	d := newDiagram()
	for _, a := range runArrows {
		d.arrow(string(a.From), string(a.To), a.Why)
		d.end(string(a.To), a.To.Terminal())
	}
	return d.String()
}

// CallDiagram is the call's transition table as a Mermaid stateDiagram-v2.
func CallDiagram() string {
	d := newDiagram()
	for _, a := range callArrows {
		d.arrow(string(a.From), string(a.To), a.Why)
		d.end(string(a.To), a.To.Terminal())
	}
	return d.String()
}

// diagram draws arrows as they come and the ends of terminal states behind them, each once.
type diagram struct {
	lines, ends []string
	ended       map[string]bool
}

func newDiagram() *diagram {
	return &diagram{lines: []string{"stateDiagram-v2"}, ended: map[string]bool{}}
}

func (d *diagram) arrow(from, to, why string) {
	if from == "" {
		from = "[*]"
	}
	d.lines = append(d.lines, "    "+from+" --> "+to+" : "+why)
}

func (d *diagram) end(state string, terminal bool) {
	if !terminal || d.ended[state] {
		return
	}
	d.ended[state] = true
	d.ends = append(d.ends, "    "+state+" --> [*]")
}

func (d *diagram) String() string {
	return strings.Join(append(d.lines, d.ends...), "\n") + "\n"
}
