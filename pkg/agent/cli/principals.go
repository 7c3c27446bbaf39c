package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// people is HOME/principals.yaml: who acts where nobody is named, the groups of who is named without any, and where people are reached. Under
// people stands what person.Read takes of a tenant.
//
//	default: user:ana
//	people:
//	  user:ana: {groups: ["group:finance"], name: Ana, email: ana@example.com, slack: U012ABCDEF, notify: [slack, email]}
//	  user:ben: [group:operators]
//	slack: {T012ABCDEF: default}
type people struct {
	Default string
	Book    *person.Book
}

// The person of a laptop without a principals.yaml.
const (
	localUser      = "user:local"
	localOperators = "group:operators"
)

// peopleFile is the file as it is written.
type peopleFile struct {
	Default string                     `json:"default"`
	People  map[string]json.RawMessage `json:"people"`
	Slack   map[string]json.RawMessage `json:"slack"`
}

// readPeople reads the file of a store directory; without one there is user:local, an operator.
func readPeople(home string) (people, error) {
	name := filepath.Join(home, "principals.yaml")
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return people{}, usage("read principals: %v", err)
	}
	doc, err := agentfile.ParseMapping(name, data, "default", "people", "slack")
	if err != nil {
		return people{}, usage("%v", err)
	}
	f, err := readPeopleFile(name, doc)
	if err != nil {
		return people{}, err
	}
	if f.Default == "" {
		f.Default = localUser
	}
	if _, ok := f.People[localUser]; !ok {
		f.People = withLocal(f.People)
	}
	book, err := f.book()
	var bad *person.ReadError
	if errors.As(err, &bad) {
		key := under(bad.Path)
		if key[len(key)-1] == "groups" {
			bad.Text += ` (within braces each in quotes: "group:finance")` // the parser takes group:finance there for a mapping
		}
		return people{}, usage("%s:%d: %s: %s", name, doc.LineOf(key...), strings.Join(key, "."), bad.Text)
	}
	if err != nil {
		return people{}, usage("%s: %v", name, err)
	}
	if _, ok := f.People[f.Default]; !ok {
		return people{}, usage("%s:%d: default: %s is not among the people", name, doc.LineOf("default"), f.Default)
	}
	return people{Default: f.Default, Book: book}, nil
}

// readPeopleFile takes the parts of the file apart. What is in them, person.Read says.
func readPeopleFile(name string, doc agentfile.Value) (f peopleFile, err error) {
	for key, dst := range map[string]any{"default": &f.Default, "people": &f.People, "slack": &f.Slack} {
		v, there := doc.Members[key]
		if !there || json.Unmarshal(v.JSON, dst) == nil {
			continue
		}
		want := "a mapping"
		if key == "default" {
			want = "user:NAME, one of the people"
		}
		return f, usage("%s:%d: %s: want %s", name, v.Line, key, want)
	}
	return f, nil
}

// book is the file as the one document of people there is.
func (f peopleFile) book() (*person.Book, error) {
	doc, err := json.Marshal(map[string]any{"tenants": map[string]any{local.Tenant: f.People}, "slack": f.Slack})
	if err != nil {
		return nil, fmt.Errorf("people: %w", err)
	}
	return person.Read(doc)
}

// under is where something of that document stands in the file.
func under(path []string) []string {
	if len(path) > 1 && path[0] == "tenants" {
		return append([]string{"people"}, path[2:]...)
	}
	return path
}

func withLocal(m map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{localUser: json.RawMessage(`["` + localOperators + `"]`)}
	for who, is := range m {
		out[who] = is
	}
	return out
}

// acting is who --as means: "" the default, a user alone with the groups that the file gives them, or exactly what is said.
func (p people) acting(as string) (policy.Principal, error) {
	if as == "" {
		as = p.Default
	}
	who, err := policy.ParsePrincipal(as)
	if err != nil || len(who.Groups) > 0 {
		return who, err
	}
	known, _, err := p.Book.Person(context.Background(), local.Tenant, who.ID)
	who.Groups = slices.Clone(known.Groups)
	return who, err
}
