package asl

import "fmt"

// choiceState goes on by the first rule that holds.
type choiceState struct {
	dataflow
	choices  []choice
	fallback string // empty = none
}

type choice struct {
	rule rule
	next string
}

func parseChoice(f *fields) state {
	s := &choiceState{dataflow: f.dataflow(), fallback: f.text("Default", optional)}
	f.get("Choices", required)
	for _, c := range f.objects("Choices") {
		s.choices = append(s.choices, choice{next: c.text("Next", required), rule: parseRule(c)})
		c.end()
	}
	return s
}

func (s *choiceState) kind() string { return "Choice" }
func (s *choiceState) final() bool  { return false }

func (s *choiceState) targets() []target {
	var all []target
	for i, c := range s.choices {
		all = append(all, target{key: fmt.Sprintf("Choices[%d].Next", i), name: c.next})
	}
	if s.fallback != "" {
		all = append(all, target{key: "Default", name: s.fallback})
	}
	return all
}

func (s *choiceState) enter(x *execution, in any) (any, string, error) {
	sc, err := s.receive(x, in)
	if err != nil {
		return nil, "", err
	}
	next, err := s.choose(sc)
	if err != nil {
		return nil, "", err
	}
	out, err := s.emit(sc)
	return out, next, err
}

func (s *choiceState) choose(sc scope) (string, error) {
	for _, c := range s.choices {
		ok, err := c.rule(sc)
		if err != nil {
			return "", err
		}
		if ok {
			return c.next, nil
		}
	}
	if s.fallback == "" {
		return "", failf(NoChoiceMatched, "no choice matched and there is no Default")
	}
	return s.fallback, nil
}
