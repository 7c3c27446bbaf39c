// Package catalog holds agents as they are deployed: their definitions in JSON, resolved. A function that only has to know them reads
// these and links neither YAML nor what tools are made of, which a registry does.
package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/countersign/countersign/pkg/agent"
)

// Agents knows agents by name; *registry.Registry does, and *Catalog.
type Agents interface {
	Agent(name string) (*agent.Definition, bool)
	Agents() []string
}

// Catalog is agents by name. It does not change once read and is safe for concurrent use; the zero Catalog is empty.
type Catalog struct {
	agents map[string]*agent.Definition
}

var _ Agents = (*Catalog)(nil)

// Text is agents in JSON, by name, for Read. The same agents always make the same text. A definition that Check refuses is an error: it is
// said here, once, and not at every start of a function.
func Text(all Agents) ([]byte, error) {
	list := []*agent.Definition{}
	for _, name := range slices.Sorted(slices.Values(all.Agents())) {
		d, ok := all.Agent(name)
		if !ok {
			return nil, fmt.Errorf("write agents: %q is listed and not there", name)
		}
		if err := d.Check(); err != nil {
			return nil, fmt.Errorf("write agents: %s: %w", d.Name, err)
		}
		list = append(list, d)
	}
	if err := agent.CheckAgents(all.Agents(), all.Agent); err != nil {
		return nil, fmt.Errorf("write agents: %w", err)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write agents: %w", err)
	}
	return append(text, '\n'), nil
}

// Read reads what Text has written. A second definition of a name, and a field that is not known, are errors.
func Read(text []byte) (*Catalog, error) {
	var small bytes.Buffer // schemas are kept as they come: without the spaces that are there for people
	if err := json.Compact(&small, text); err != nil {
		return nil, fmt.Errorf("read agents: %w", err)
	}
	d := json.NewDecoder(&small)
	d.DisallowUnknownFields()
	var list []*agent.Definition
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("read agents: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read agents: want one list, got more")
	}
	c := &Catalog{agents: map[string]*agent.Definition{}}
	for i, def := range list {
		if err := c.add(def); err != nil {
			return nil, fmt.Errorf("read agents: [%d]: %w", i, err)
		}
	}
	return c, nil
}

func (c *Catalog) add(d *agent.Definition) error {
	if d == nil {
		return errors.New("want an agent, got null")
	}
	if _, taken := c.agents[d.Name]; taken {
		return fmt.Errorf("%s: the name is taken", d.Name)
	}
	c.agents[d.Name] = d
	return nil
}

// Agent finds an agent's definition. It is shared: do not change it.
func (c *Catalog) Agent(name string) (*agent.Definition, bool) {
	d, ok := c.agents[name]
	return d, ok
}

// Agents lists the agents' names, sorted.
func (c *Catalog) Agents() []string { return slices.Sorted(maps.Keys(c.agents)) }
