package asl

// succeedState ends the execution with its output.
type succeedState struct{ dataflow }

func parseSucceed(f *fields) state { return &succeedState{f.dataflow()} }

func (s *succeedState) kind() string      { return "Succeed" }
func (s *succeedState) targets() []target { return nil }
func (s *succeedState) final() bool       { return true }

func (s *succeedState) enter(x *execution, in any) (any, string, error) {
	sc, err := s.receive(x, in)
	if err != nil {
		return nil, "", err
	}
	out, err := s.emit(sc)
	return out, "", err
}

// failState ends the execution with an error.
type failState struct{ failure Failure }

func parseFail(f *fields) state {
	return &failState{Failure{Name: f.text("Error", optional), Cause: f.text("Cause", optional)}}
}

func (s *failState) kind() string      { return "Fail" }
func (s *failState) targets() []target { return nil }
func (s *failState) final() bool       { return true }

func (s *failState) enter(*execution, any) (any, string, error) {
	f := s.failure
	return nil, "", &f
}
