// Package script is the scripted model of scenarios and of `--model script:FILE`: it answers from the lines of a
// model.jsonl (docs/scenarios.md) and says where a request is not what its line wants.
//
// A line is found by position in the journal and by nothing else, so that a request repeated after a crash, or in
// another process, gets the same line. The script is cut into blocks, one an inference: any number of error lines, then
// one reply. Inference i is answered from block i, its attempt k from the block's line k, and further attempts from its
// last. The last block may be errors alone: the inference that ends the run.
//
// An inference that was given up because its model was busy (Model.GiveUp) goes on behind the lines of the attempts
// that were made.
//
// A stream that breaks off is a reply with cut, where the definition keeps what was received, and so the inference's
// last line; or an error with what it had said before, where it does not.
//
// Notes that a model writes of messages which are about to leave (LifecycleNotes) belong to the inference that they
// make room for. The lines that answer for them say notes and stand before its own; each of its attempts begins with
// the first of them.
package script

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Script is a model.jsonl that was read without complaint. It never changes and is safe for concurrent use.
type Script struct {
	file   string
	blocks [][]line       // one an inference, none empty
	notes  map[int][]line // of a block, by its index
	end    int            // the number of the line after the last
}

// line is one reply or error.
type line struct {
	number    int // in the file, from 1
	text      string
	chunks    []string // text in stream pieces; nil = in one piece
	calls     []agent.ReplyCall
	class     agent.ModelErrorClass // not empty: the request fails, behind what else the line has
	cut       bool                  // the stream breaks off behind the reply
	usage     run.Usage
	reasoning []run.RepliedReasoning // before everything else
	stop      string                 // why the model stopped, in a provider's word; empty = at its end
	model     string                 // the id of the model that must be asking; empty = any
	want      json.RawMessage        // matched against the request; empty = anything goes
	notes     bool                   // it answers a request for notes
}

// Parse reads a model.jsonl. Blank lines are skipped; a file without lines is a script that runs out at once. Unknown
// keys, keys given twice and bad values are errors that name file, line and key.
func Parse(file string, data []byte) (*Script, error) {
	s := &Script{file: file, end: 1, notes: map[int][]line{}}
	var block []line
	for i, raw := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		l, err := parseLine(raw)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		l.number, s.end = i+1, i+2
		if l.notes {
			if len(block) > 0 {
				return nil, fmt.Errorf("%s:%d: notes: behind an error of the inference that they are for", file, i+1)
			}
			s.notes[len(s.blocks)] = append(s.notes[len(s.blocks)], l)
			continue
		}
		block = append(block, l)
		if l.class == "" {
			s.blocks, block = append(s.blocks, block), nil
		}
	}
	if len(block) > 0 {
		s.blocks = append(s.blocks, block)
	}
	if last := s.notes[len(s.blocks)]; last != nil {
		return nil, fmt.Errorf("%s:%d: notes: before no inference", file, last[0].number)
	}
	return s, nil
}

// lineFor finds the line of an attempt (from 0) at an inference (from 1), or at the notes before it.
func (s *Script) lineFor(r agent.Request) (line, bool) {
	inference, attempt := r.Inference, r.Attempt
	if inference < 1 || inference > int64(len(s.blocks)) || attempt < 0 {
		return line{}, false
	}
	block := s.blocks[inference-1]
	if r.Lifecycle == run.LifecycleNotes {
		block = s.notes[int(inference-1)]
	}
	if len(block) == 0 {
		return line{}, false
	}
	return block[min(attempt, len(block)-1)], true
}
