package agent

import "fmt"

// Guards stop a model that goes in circles. The zero value stops nothing.
type Guards struct {
	DuplicateCalls bool `json:"duplicateCalls,omitempty"` // a call identical to one whose result the model has is not carried out again
	FailedRounds   int  `json:"failedRounds,omitempty"`   // after so many rounds in a row in which every call failed the model is told to change its approach; 0 = never
	ToolFailures   int  `json:"toolFailures,omitempty"`   // a tool that has failed so often is offered no more; 0 = always offered
}

func (c *checker) guards(at string, g Guards) {
	c.that(g.FailedRounds >= 0, at+".failedRounds", fmt.Sprintf("got %d, want zero or more", g.FailedRounds))
	c.that(g.ToolFailures >= 0, at+".toolFailures", fmt.Sprintf("got %d, want zero or more", g.ToolFailures))
}
