package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/countersign/countersign/pkg/agent"
)

// people is HOME/principals.yaml: who acts where nobody is named, and the groups of who is named without any.
//
//	default: user:ana
//	people:
//	  user:ana: [group:finance, group:operators]
//	  user:ben: []
type people struct {
	Default string              `yaml:"default"`
	People  map[string][]string `yaml:"people"`
}

// The person of a laptop without a principals.yaml.
const (
	localUser      = "user:local"
	localOperators = "group:operators"
)

// readPeople reads the file of a store directory; without one there is user:local, an operator.
func readPeople(home string) (people, error) {
	name := filepath.Join(home, "principals.yaml")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return people{Default: localUser, People: map[string][]string{localUser: {localOperators}}}, nil
	}
	if err != nil {
		return people{}, usage("read principals: %v", err)
	}
	var p people
	if err := yaml.UnmarshalWithOptions(data, &p, yaml.Strict()); err != nil {
		return people{}, usage("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if p.Default == "" {
		p.Default = localUser
	}
	if _, ok := p.People[localUser]; !ok {
		p.People = withLocal(p.People)
	}
	for who, groups := range p.People {
		if _, err := principal(who, groups); err != nil {
			return people{}, usage("%s: people: %v", name, err)
		}
	}
	if _, ok := p.People[p.Default]; !ok {
		return people{}, usage("%s: default: %s is not among the people", name, p.Default)
	}
	return p, nil
}

func withLocal(m map[string][]string) map[string][]string {
	out := map[string][]string{localUser: {localOperators}}
	for who, groups := range m {
		out[who] = groups
	}
	return out
}

// principal is one person of the file.
func principal(who string, groups []string) (agent.Principal, error) {
	p, err := agent.ParsePrincipal(strings.Join(append([]string{who}, groups...), ","))
	if err == nil && (p.ID != who || !slices.Equal(p.Groups, groups) && len(groups) > 0) {
		err = fmt.Errorf("%q: want user:NAME with a list of group:NAME", who)
	}
	return p, err
}

// acting is who --as means: "" the default, a user alone with the file's groups, or exactly what is said.
func (p people) acting(as string) (agent.Principal, error) {
	if as == "" {
		as = p.Default
	}
	who, err := agent.ParsePrincipal(as)
	if err != nil {
		return agent.Principal{}, err
	}
	if len(who.Groups) == 0 {
		who.Groups = p.People[who.ID]
	}
	return who, nil
}
