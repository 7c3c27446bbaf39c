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

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/person"
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
	Default string         `yaml:"default"`
	People  map[string]any `yaml:"people"`
	Slack   map[string]any `yaml:"slack"`
}

// readPeople reads the file of a store directory; without one there is user:local, an operator.
func readPeople(home string) (people, error) {
	name := filepath.Join(home, "principals.yaml")
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return people{}, usage("read principals: %v", err)
	}
	var f peopleFile
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil && len(data) > 0 {
		return people{}, usage("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
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
		return people{}, usage("%s:%d: %s: %s", name, lineOfKey(data, key), strings.Join(key, "."), bad.Text)
	}
	if err != nil {
		return people{}, usage("%s: %v", name, err)
	}
	if _, ok := f.People[f.Default]; !ok {
		return people{}, usage("%s:%d: default: %s is not among the people", name, lineOfKey(data, []string{"default"}), f.Default)
	}
	return people{f.Default, book}, nil
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

// lineOfKey is the line of the key at the end of a path of a YAML text, or of the last that leads there.
func lineOfKey(data []byte, path []string) int {
	line := 1
	file, err := parser.ParseBytes(data, 0)
	if err != nil || len(file.Docs) == 0 {
		return line
	}
	node := file.Docs[0].Body
	for _, key := range path {
		object, ok := node.(ast.MapNode)
		if !ok {
			return line
		}
		node = nil
		for it := object.MapRange(); it.Next(); {
			if it.Key().String() == key || strings.Trim(it.Key().String(), `"'`) == key {
				line, node = it.Key().GetToken().Position.Line, it.Value()
			}
		}
	}
	return line
}

func withLocal(m map[string]any) map[string]any {
	out := map[string]any{localUser: []string{localOperators}}
	for who, is := range m {
		out[who] = is
	}
	return out
}

// acting is who --as means: "" the default, a user alone with the groups that the file gives them, or exactly what is said.
func (p people) acting(as string) (agent.Principal, error) {
	if as == "" {
		as = p.Default
	}
	who, err := agent.ParsePrincipal(as)
	if err != nil || len(who.Groups) > 0 {
		return who, err
	}
	known, _, err := p.Book.Person(context.Background(), local.Tenant, who.ID)
	who.Groups = slices.Clone(known.Groups)
	return who, err
}
