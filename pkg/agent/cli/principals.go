package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// principals is HOME/principals.yaml: the default principal, and people with their groups and addresses. An entry of
// people has the form of person.Read.
//
//	default: user:ana
//	people:
//	  user:ana: {groups: ["group:finance"], name: Ana, email: ana@example.com, slack: U012ABCDEF, notify: [slack, email]}
//	  user:ben: [group:operators]
//	slack: {T012ABCDEF: default}
type principals struct {
	Default string
	Book    *person.Book
}

// The principal of a laptop without a principals.yaml.
const (
	localUser      = "user:local"
	localOperators = "group:operators"
)

// principalsFile is the file as it is written.
type principalsFile struct {
	Default string                     `json:"default"`
	People  map[string]json.RawMessage `json:"people"`
	Slack   map[string]json.RawMessage `json:"slack"`
}

// readPrincipals reads the file of a store directory. Without a file there is user:local, an operator.
func readPrincipals(home string) (principals, error) {
	name := filepath.Join(home, "principals.yaml")
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return principals{}, usageErrorf("read principals: %v", err)
	}
	doc, err := agentfile.ParseMapping(name, data, "default", "people", "slack")
	if err != nil {
		return principals{}, usageErrorf("%v", err)
	}
	f, err := decodePrincipals(name, doc)
	if err != nil {
		return principals{}, err
	}
	if f.Default == "" {
		f.Default = localUser
	}
	if _, ok := f.People[localUser]; !ok {
		f.People = maps.Clone(f.People)
		if f.People == nil {
			f.People = map[string]json.RawMessage{}
		}
		f.People[localUser] = json.RawMessage(`["` + localOperators + `"]`)
	}
	merged, err := json.Marshal(map[string]any{"tenants": map[string]any{local.Tenant: f.People}, "slack": f.Slack})
	if err != nil {
		return principals{}, usageErrorf("%s: people: %v", name, err)
	}
	book, err := person.Read(merged)
	var bad *person.ReadError
	if errors.As(err, &bad) {
		key := bad.Path
		if len(key) > 1 && key[0] == "tenants" { // in the file, people stands in place of tenants and the one tenant
			key = append([]string{"people"}, key[2:]...)
		}
		if key[len(key)-1] == "groups" {
			bad.Text += ` (within braces each in quotes: "group:finance")` // the parser reads group:finance as a mapping
		}
		return principals{}, usageErrorf("%s:%d: %s: %s", name, doc.LineOf(key...), strings.Join(key, "."), bad.Text)
	}
	if err != nil {
		return principals{}, usageErrorf("%s: %v", name, err)
	}
	if _, ok := f.People[f.Default]; !ok {
		return principals{}, usageErrorf("%s:%d: default: %s is not among the people", name, doc.LineOf("default"),
			f.Default)
	}
	return principals{Default: f.Default, Book: book}, nil
}

// decodePrincipals decodes the top-level keys. person.Read checks their contents.
func decodePrincipals(name string, doc agentfile.Value) (f principalsFile, err error) {
	for key, dst := range map[string]any{"default": &f.Default, "people": &f.People, "slack": &f.Slack} {
		v, there := doc.Members[key]
		if !there || json.Unmarshal(v.JSON, dst) == nil {
			continue
		}
		want := "a mapping"
		if key == "default" {
			want = "user:NAME, one of the people"
		}
		return f, usageErrorf("%s:%d: %s: want %s", name, v.Line, key, want)
	}
	return f, nil
}

// resolvePrincipal returns the principal of --as. "" is the default. A user without groups gets the groups of the
// file.
func (p principals) resolvePrincipal(as string) (policy.Principal, error) {
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
