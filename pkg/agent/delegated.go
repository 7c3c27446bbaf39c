package agent

// Parent is the call of another run that a run is carried out for.
type Parent struct {
	Run   string `json:"run"`
	Call  string `json:"call"`
	Root  string `json:"root"`  // the run that nobody delegated, at which people see what is asked of them
	Depth int    `json:"depth"` // 1 = Run is the root
}
