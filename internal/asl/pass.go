package asl

// passState hands its input on, with a fixed or filled-in result.
type passState struct {
	dataflow
	parameters *template
	result     any
	hasResult  bool
	place      selector
	next       string
}

func parsePass(f *fields) state {
	s := &passState{dataflow: f.dataflow(), parameters: f.template("Parameters", false), place: f.result(), next: f.next()}
	s.hasResult = f.has("Result")
	s.result = f.m["Result"]
	f.asked["Result"] = true
	return s
}

func (s *passState) kind() string      { return "Pass" }
func (s *passState) targets() []target { return nextTarget(s.next) }
func (s *passState) final() bool       { return s.next == "" }

func (s *passState) enter(x *execution, in any) (any, string, error) {
	sc, err := s.receive(x, in)
	if err != nil {
		return nil, "", err
	}
	result := sc.data
	if s.parameters != nil {
		if result, err = s.parameters.eval(sc); err != nil {
			return nil, "", err
		}
	}
	if s.hasResult {
		result = s.result
	}
	if sc.data, err = s.place.place(in, result); err != nil {
		return nil, "", err
	}
	out, err := s.emit(sc)
	return out, s.next, err
}

func nextTarget(name string) []target {
	if name == "" {
		return nil
	}
	return []target{{key: "Next", name: name}}
}
