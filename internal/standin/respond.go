package standin

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/countersign/countersign/internal/agent"
)

// responding is the job of agents/incident: compare what runs with the version before it, roll it back if that was better, and else, or
// where that is refused, wake a person.
var responding = job{"incident", []string{metricsTool, deploysTool, logsTool, rollbackTool, pageTool},
	func(r agent.Request) agent.Reply { return respond(asked(r.Messages), answers(r.Messages)) }}

const (
	metricsTool  = "metrics_query"
	deploysTool  = "deploys_list"
	logsTool     = "logs_search"
	rollbackTool = "deploys_rollback"
	pageTool     = "page_human"
)

// worse is how many times the errors of the version before make a bad one.
const worse = 5

var serviceName = regexp.MustCompile(`(?i)service:?\s+([a-z0-9-]+)`)

// evidence is the result of metrics_query.
type evidence struct {
	Runs  string  `json:"runs"`
	Now   float64 `json:"now"`
	While []struct {
		Version string  `json:"version"`
		Value   float64 `json:"value"`
	} `json:"while"`
}

func respond(alarm string, all []answer) agent.Reply {
	name := serviceName.FindStringSubmatch(alarm)
	if name == nil {
		return agent.Reply{Text: Hello + " I look for \"service\" and its name in the alarm, and there is none."}
	}
	service := map[string]any{"service": name[1]}
	measured, ok := last(all, metricsTool)
	if !ok {
		return call(Hello+" I will look at the errors of "+name[1]+" first.", metricsTool, map[string]any{"service": name[1], "metric": "errors_percent"})
	}
	var e evidence
	if measured.failed || json.Unmarshal([]byte(measured.content), &e) != nil {
		return agent.Reply{Text: "I could not look at the errors: " + firstLine(measured.content)}
	}
	if _, ok := last(all, deploysTool); !ok {
		return call("", deploysTool, service)
	}
	if _, ok := last(all, logsTool); !ok {
		return call("", logsTool, map[string]any{"service": name[1], "level": "error"})
	}
	return settle(name[1], e, all)
}

// settle decides what is done about it.
func settle(service string, e evidence, all []answer) agent.Reply {
	if paged, ok := last(all, pageTool); ok {
		return agent.Reply{Text: fmt.Sprintf("%s runs %s with %v %% errors. A person was woken: %s", service, e.Runs, e.Now, firstLine(paged.content))}
	}
	back, tried := last(all, rollbackTool)
	better := e.better()
	switch {
	case tried && back.failed:
		return call("", pageTool, map[string]any{"service": service,
			"summary": fmt.Sprintf("%s has %v %% errors on %s, and it was not rolled back: %s", service, e.Now, e.Runs, firstLine(back.content))})
	case !tried && better != "":
		return call("", rollbackTool, map[string]any{"service": service, "to": better,
			"reason": fmt.Sprintf("%v %% of requests fail on %s, and far fewer did on %s.", e.Now, e.Runs, better)})
	case !tried:
		return call("", pageTool, map[string]any{"service": service, "summary": fmt.Sprintf("An alarm is on for %s, and its errors (%v %%) point at no deploy.", service, e.Now)})
	case all[len(all)-1].tool == rollbackTool:
		return call("", metricsTool, map[string]any{"service": service, "metric": "errors_percent"})
	default:
		return agent.Reply{Text: fmt.Sprintf("%s was rolled back and runs %s. %v %% of its requests fail now. Somebody has to mend what was rolled back.", service, e.Runs, e.Now)}
	}
}

// better is the version before the one that runs, if that had far fewer errors; "" = it had not, or there is none.
func (e evidence) better() string {
	for i, w := range e.While {
		if w.Version == e.Runs && i > 0 && e.Now > worse*e.While[i-1].Value {
			return e.While[i-1].Version
		}
	}
	return ""
}
