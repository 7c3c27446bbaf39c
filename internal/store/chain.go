package store

import (
	"fmt"

	"github.com/countersign/countersign/internal/run"
)

// Chain is the state of verifying a run's journal, entry by entry. The zero value is a journal of which nothing was
// read. Not safe for concurrent use.
type Chain struct {
	Run     string // from its first entry; "" = none was read
	Entries int64
	Hash    string // hash of the newest entry
	Done    bool   // the newest entry ends the run
}

// Add checks the next entry in stored form. The error says what is wrong with it and quotes nothing of it. Then the
// journal is as written up to the entry before, and the rest cannot be trusted.
func (c *Chain) Add(stored []byte) error {
	e, err := run.UnmarshalEntry(stored)
	switch {
	case err != nil:
		return fmt.Errorf("changed: entry %d is not one that is written: %w", c.Entries, err)
	case e.Seq > c.Entries:
		return fmt.Errorf("gap: entry %d is not there, %d follows", c.Entries, e.Seq)
	case e.Seq < c.Entries:
		return fmt.Errorf("order: entry %d stands behind entry %d", e.Seq, c.Entries-1)
	case e.Prev != c.Hash:
		return fmt.Errorf("changed: entry %d follows another entry %d than the one that is there", e.Seq, e.Seq-1)
	case c.Done:
		return fmt.Errorf("added: entry %d stands behind the end of the run", e.Seq)
	}
	for _, fact := range e.Events {
		switch fact := fact.(type) {
		case run.RunStarted:
			if e.Seq > 0 {
				return fmt.Errorf("changed: entry %d starts the run again", e.Seq)
			}
			c.Run = fact.Run
		case run.Finished:
			c.Done = true
		}
	}
	if c.Run == "" {
		return fmt.Errorf("changed: entry %d does not start a run", e.Seq)
	}
	c.Entries, c.Hash = e.Seq+1, e.Hash()
	return nil
}
