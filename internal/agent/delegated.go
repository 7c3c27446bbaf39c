package agent

import "slices"

// Parent is the call of another run that a run is carried out for. It is a value that nobody may change.
type Parent struct {
	Run    string   `json:"run"`
	Call   string   `json:"call"`
	Root   string   `json:"root"`             // the run that nobody delegated, at which people see what is asked of them
	Depth  int      `json:"depth"`            // 1 = Run is the root
	Agents []string `json:"agents"`           // of the runs from the root to Run; the run's own agent is none of them
	Domain string   `json:"domain,omitempty"` // where the event of the run's end is to be routed; "" = nowhere in particular
}

// Caller is the agent whose call the run carries out; "" = nobody delegated it.
func (s *AgentState) Caller() string {
	if s.Parent == nil || len(s.Parent.Agents) == 0 {
		return ""
	}
	return s.Parent.Agents[len(s.Parent.Agents)-1]
}

// Child is a run that a call is, and what it was promised of what its parent had left. Zero amounts are no limit.
type Child struct {
	Run    string `json:"run"`
	Tokens int64  `json:"tokens,omitempty"`
	USD    USD    `json:"usd,omitempty"`
}

// ChildUsage is what a run used, with all the runs that its own calls were.
type ChildUsage struct {
	Usage    Usage `json:"usage"`
	Requests int64 `json:"requests"` // to models, failed ones included
	Units    int64 `json:"units"`
	Cost     USD   `json:"cost,omitempty"` // 0 where no price is known
}

// Add is both together.
func (u ChildUsage) Add(v ChildUsage) ChildUsage {
	return ChildUsage{Usage: u.Usage.Add(v.Usage), Requests: u.Requests + v.Requests, Units: u.Units + v.Units, Cost: u.Cost.add(v.Cost)}
}

// Used is what the run itself has used, with the children that have answered. It lacks those that have not.
func (s *AgentState) Used() ChildUsage {
	return ChildUsage{Usage: s.Usage, Requests: s.ModelCalls, Units: s.ExecutionUnits, Cost: s.Cost}
}

// Children are the runs that a run's calls are. The zero value is none.
type Children struct {
	Open  []OpenChild `json:"open,omitempty"`  // that have not answered, oldest first; also those whose call is settled. Never written in place
	Begun int         `json:"begun,omitempty"` // in all
}

// OpenChild is a child that has not answered.
type OpenChild struct {
	Call string `json:"call"`
	Child
}

func (c Children) zero() bool { return len(c.Open) == 0 && c.Begun == 0 }

// ChildOf is the open child of a call.
func (s *AgentState) ChildOf(call string) (Child, bool) {
	i := slices.IndexFunc(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
	if i < 0 {
		return Child{}, false
	}
	return s.Children.Open[i].Child, true
}

// AwaitsChild reports whether the run goes on, and waits for what that child says to a call.
func (s *AgentState) AwaitsChild(call, child string) bool {
	c, noted := s.ChildOf(call)
	of, ok := s.Call(call)
	return s.Status != RunDone && noted && c.Run == child && ok && of.Open()
}

// Abandoned are the children whose call has been settled without their answer: nobody waits for them any more.
func (s *AgentState) Abandoned() []OpenChild {
	var list []OpenChild
	for _, c := range s.Children.Open {
		if call, ok := s.Call(c.Call); !ok || !call.Open() {
			list = append(list, c)
		}
	}
	return list
}

// adopt notes the child of a claim. One that is claimed again keeps the child it has.
func (s *AgentState) adopt(c *Call, child *Child) {
	if child == nil || c.Child != "" {
		return
	}
	c.Child = child.Run
	s.Children.Open = append(s.Children.Open[:len(s.Children.Open):len(s.Children.Open)], OpenChild{Call: c.ID, Child: *child})
	s.Children.Begun++
}

// disinherit takes a child off that will not answer.
func (s *AgentState) disinherit(call string) {
	i := slices.IndexFunc(s.Children.Open, func(c OpenChild) bool { return c.Call == call })
	if i < 0 {
		return
	}
	s.Children.Open = slices.Delete(slices.Clone(s.Children.Open), i, i+1)
	if len(s.Children.Open) == 0 {
		s.Children.Open = nil
	}
}

// heard takes in the answer of an open child: it counts what that used, and settles its call wherever that stands. One that was heard
// before changes nothing.
func (s *AgentState) heard(e Answered) error {
	if _, open := s.ChildOf(e.Call); !open {
		return nil
	}
	if err := s.awake("answered"); err != nil {
		return err
	}
	s.Usage = s.Usage.Add(e.Used.Usage)
	s.ModelCalls += e.Used.Requests
	s.ExecutionUnits += e.Used.Units
	s.Cost = s.Cost.add(e.Used.Cost)
	s.disinherit(e.Call)
	if _, ok := s.Call(e.Call); !ok { // settled so long ago that a snapshot lacks it
		return nil
	}
	return s.change(e.Call, "answered", func(c *Call) error {
		path := []CallStatus{outcome(e.IsError)}
		if c.Status == StatusSuspended {
			path = []CallStatus{StatusResuming, outcome(e.IsError)}
		}
		r := Result{Content: e.Content, Blob: e.Blob, IsError: e.IsError, Media: e.Media, Whole: e.Whole}
		return s.settle(c, r, errorReason(e.IsError, ""), "answered", path...)
	})
}
