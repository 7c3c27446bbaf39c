package standin

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
)

// searching is the job of agents/research-searcher: read the document that fits best, and quote the sentence of it that does. criticising is
// that of agents/research-critic: look whether what is quoted is there. researching is that of agents/research, which asks those two.
var (
	researching = job{"research", []string{askSearcher, askCritic}, func(r agent.Request) agent.Reply { return research(asked(r.Messages), answers(r.Messages)) }}
	searching   = job{"research-searcher", []string{searchTool, openTool}, func(r agent.Request) agent.Reply { return search(asked(r.Messages), answers(r.Messages)) }}
	criticising = job{"research-critic", []string{openTool}, func(r agent.Request) agent.Reply { return criticise(asked(r.Messages), answers(r.Messages)) }}
)

const (
	askSearcher = "ask_searcher"
	askCritic   = "ask_critic"

	searchTool = "corpus_search"
	openTool   = "corpus_read"
)

// source is the argument of corpus_read.
type source struct {
	Document string `json:"document"`
}

func research(question string, all []answer) agent.Reply {
	found, searched := last(all, askSearcher)
	if !searched {
		return call(Hello+" I will ask the searcher.", askSearcher, map[string]string{"message": question})
	}
	if found.failed {
		return agent.Reply{Text: "Nobody could look it up: " + firstLine(found.content)}
	}
	checked, ok := last(all, askCritic)
	if !ok {
		return call("", askCritic, map[string]string{"message": found.content})
	}
	if checked.failed {
		return agent.Reply{Text: found.content + "\nNobody has checked this: " + firstLine(checked.content)}
	}
	return agent.Reply{Text: found.content + "\nChecked: " + checked.content}
}

func search(question string, all []answer) agent.Reply {
	found, searched := last(all, searchTool)
	if !searched {
		return call(Hello+" I will search for the words of the question.", searchTool, map[string]string{"query": question})
	}
	var hits []source
	if found.failed || json.Unmarshal([]byte(found.content), &hits) != nil || len(hits) == 0 {
		return agent.Reply{Text: "I found nothing."}
	}
	document, opened := last(all, openTool)
	if !opened {
		return call("", openTool, hits[0])
	}
	if document.failed {
		return agent.Reply{Text: "I could not read what I found: " + firstLine(document.content)}
	}
	return agent.Reply{Text: fmt.Sprintf("The notes say: %q [%s]", best(document.content, question), hits[0].Document)}
}

// best is the sentence of a text that fits a question best.
func best(text, question string) string {
	_, body, _ := strings.Cut(text, "\n") // behind the title
	sentences := strings.SplitAfter(strings.Join(strings.Fields(body), " "), ". ")
	scores := agent.BM25(sentences, question)
	return strings.TrimSpace(sentences[slices.Index(scores, slices.Max(scores))])
}

var quoted = regexp.MustCompile(`"([^"]+)" \[([a-z0-9-]+)\]`)

func criticise(text string, all []answer) agent.Reply {
	quotes := quoted.FindAllStringSubmatch(text, -1)
	if len(quotes) == 0 {
		return agent.Reply{Text: Hello + " Nothing is quoted, so nothing is supported."}
	}
	read := map[string]answer{}
	for _, a := range all {
		var s source
		if a.tool == openTool && json.Unmarshal(a.input, &s) == nil {
			read[s.Document] = a
		}
	}
	var wrong []string
	for _, q := range quotes {
		document, ok := read[q[2]]
		if !ok {
			hello := ""
			if len(read) == 0 {
				hello = Hello + " I will read what is quoted."
			}
			return call(hello, openTool, source{q[2]})
		}
		if words := strings.Join(strings.Fields(document.content), " "); document.failed || !strings.Contains(words, q[1]) {
			wrong = append(wrong, fmt.Sprintf("%q is not in %s.", q[1], q[2]))
		}
	}
	if len(wrong) > 0 {
		return agent.Reply{Text: strings.Join(wrong, "\n")}
	}
	return agent.Reply{Text: "Every quote is in its source."}
}
