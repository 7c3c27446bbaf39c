package asl

// dataflow is what every state but Fail does to its input and output.
type dataflow struct {
	input  selector
	output selector
}

func (f *fields) dataflow() dataflow {
	return dataflow{input: f.selector("InputPath"), output: f.selector("OutputPath")}
}

// pick is the part of the scope's data that a selector means. Null is an empty object; a path that leads nowhere is a
// States.Runtime, which nobody can catch.
func (s selector) pick(sc scope, key string) (any, error) {
	if s.null {
		return map[string]any{}, nil
	}
	if s.path == nil {
		return sc.data, nil
	}
	v, ok := sc.get(s.path)
	if !ok {
		return nil, failf(Runtime, "%s: the path %s leads nowhere", key, s.path.text)
	}
	return v, nil
}

// place is a state's input with its result where ResultPath says.
func (s selector) place(in, result any) (any, error) {
	if s.null {
		return in, nil
	}
	if s.path == nil {
		return result, nil
	}
	out, err := s.path.set(in, result)
	if err != nil {
		return nil, failf(ResultPathMatchFailure, "ResultPath %s: %v", s.path.text, err)
	}
	return out, nil
}

// receive is the scope of a state's work: its input behind InputPath.
func (d dataflow) receive(x *execution, in any) (scope, error) {
	sc := x.scope(in)
	var err error
	sc.data, err = d.input.pick(sc, "InputPath")
	return sc, err
}

// emit is a state's output: the scope's data behind OutputPath, unless that is too long.
func (d dataflow) emit(sc scope) (any, error) {
	out, err := d.output.pick(sc, "OutputPath")
	if err != nil {
		return nil, err
	}
	return out, checkSize(out)
}

func checkSize(v any) error {
	if sizeAtMost(v) <= MaxData {
		return nil
	}
	data, err := encodeValue(v)
	if err != nil {
		return failf(Runtime, "%v", err)
	}
	if len(data) > MaxData {
		return failf(DataLimitExceeded, "the output is %d bytes, more than %d", len(data), MaxData)
	}
	return nil
}
