package hook

import (
	"context"
	"encoding/json"
	"slices"
)

// ReminderPath is where a run keeps its reminders for the plugin reminder: a list of texts, to which tools and other
// plugins may add.
const ReminderPath = "/reminders"

// reminderConfig is the configuration of the plugin reminder.
type reminderConfig struct {
	Texts []string `json:"texts"` // what the list begins with in every attempt
	Keep  bool     `json:"keep"`  // the list is not emptied by a call of the model
}

// reminder puts each text of a list into the request, once, as session context, and empties the list when the model has
// been called (presets 10).
func reminder(config json.RawMessage) (Plugin, error) {
	var c reminderConfig
	if err := decode(config, &c); err != nil {
		return Plugin{}, err
	}
	p := Plugin{BeforeInference: addReminders}
	if len(c.Texts) > 0 {
		p.RunStart = c.begin
	}
	if !c.Keep {
		p.AfterInference = clearReminders
	}
	return p, nil
}

func (c reminderConfig) begin(_ context.Context, m *Moment) error {
	have := reminders(m)
	if list := deduplicated(append(slices.Clone(have), c.Texts...)); len(list) != len(have) {
		m.Patch(ReminderPath, list)
	}
	return nil
}

func addReminders(_ context.Context, m *BeforeInference) error {
	for _, text := range reminders(&m.Moment) {
		m.AddSession(text)
	}
	return nil
}

func clearReminders(_ context.Context, m *AfterInference) error {
	if m.Failure() == nil && len(reminders(&m.Moment)) > 0 {
		m.Patch(ReminderPath, []string{})
	}
	return nil
}

// reminders is the run's list, each text once. What is there and is no list of texts reminds of nothing.
func reminders(m *Moment) []string {
	var list []string
	if _, err := m.Value(ReminderPath, &list); err != nil {
		return nil
	}
	return deduplicated(list)
}

func deduplicated(list []string) []string {
	var once []string
	for _, text := range list {
		if text != "" && !slices.Contains(once, text) {
			once = append(once, text)
		}
	}
	return once
}
