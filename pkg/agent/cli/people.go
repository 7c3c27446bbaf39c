package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// principals is HOME/principals.yaml: the default principal, and people with their groups and addresses. An entry of
// people has the form of people.Read.
//
//	default: user:ana
//	people:
//	  user:ana: {groups: ["group:finance"], name: Ana, email: ana@example.com, slack: U012ABCDEF, notify: [slack, email]}
//	  user:ben: [group:operators]
//	slack: {T012ABCDEF: default}
type principals struct {
	Default string
	Book    *people.Book
}

// The principal of a laptop without a principals.yaml.
const (
	localUser      = "user:local"
	localOperators = "group:operators"
)

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
	var who principals
	var staff, slack map[string]json.RawMessage // people.Read checks them
	for key, dst := range map[string]any{"default": &who.Default, "people": &staff, "slack": &slack} {
		v, there := doc.Members[key]
		if !there || json.Unmarshal(v.JSON, dst) == nil {
			continue
		}
		want := "a mapping"
		if key == "default" {
			want = "user:NAME, one of the people"
		}
		return principals{}, usageErrorf("%s:%d: %s: want %s", name, v.Line, key, want)
	}
	who.Default = cmp.Or(who.Default, localUser)
	if staff == nil {
		staff = map[string]json.RawMessage{}
	}
	if _, ok := staff[localUser]; !ok {
		staff[localUser] = json.RawMessage(`["` + localOperators + `"]`)
	}
	merged, err := json.Marshal(map[string]any{"tenants": map[string]any{local.Tenant: staff}, "slack": slack})
	if err != nil {
		return principals{}, usageErrorf("%s: people: %v", name, err)
	}
	who.Book, err = people.Read(merged)
	if bad, ok := errors.AsType[*people.ReadError](err); ok {
		key := bad.Path
		if len(key) > 1 && key[0] == "tenants" { // in the file, people stands in place of tenants and the one tenant
			key = append([]string{"people"}, key[2:]...)
		}
		if slices.Contains(key, "groups") {
			bad.Text += ` (within braces each in quotes: "group:finance")` // the parser reads group:finance as a mapping
		}
		return principals{}, usageErrorf("%s:%d: %s: %s", name, doc.LineOf(key...), strings.Join(key, "."), bad.Text)
	}
	if err != nil {
		return principals{}, usageErrorf("%s: %v", name, err)
	}
	if _, ok := staff[who.Default]; !ok {
		return principals{}, usageErrorf("%s:%d: default: %s is not among the people", name, doc.LineOf("default"),
			who.Default)
	}
	return who, nil
}

// unknownApprovers describes the approvers of an agent who are nobody in principals.yaml. Without the file anybody can
// be somebody (--as).
func (p *program) unknownApprovers(ctx context.Context, d *agent.Definition) (found []string, err error) {
	name := filepath.Join(p.home, "principals.yaml")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	who, err := readPrincipals(p.home)
	if err != nil {
		return nil, err
	}
	check := func(key string, principals []string) {
		for i, principal := range principals {
			members, failed := who.Book.Members(ctx, local.Tenant, []string{principal})
			if err = errors.Join(err, failed); len(members) == 0 {
				found = append(found, fmt.Sprintf("%s[%d]: %.64s is nobody in %s", key, i, principal, name))
			}
		}
	}
	check("permission.approvers", d.Permission.Approvers)
	for i, r := range d.Permission.Rules {
		key := fmt.Sprintf("permission.rules[%d]", i)
		check(key+".approvers", r.Approvers)
		if r.Escalate != nil {
			check(key+".escalate.to", r.Escalate.To)
		}
	}
	return found, err
}

// resolvePrincipals reads principals.yaml and returns the person who acts.
func (p *program) resolvePrincipals() (who principals, as policy.Principal, err error) {
	if who, err = readPrincipals(p.home); err != nil {
		return who, as, err
	}
	if as, err = who.resolvePrincipal(p.as); err != nil {
		err = usageErrorf("--as: %v", err)
	}
	return who, as, err
}

// resolvePrincipal returns the principal of --as. "" is the default. A user without groups gets the groups of the
// file.
func (p principals) resolvePrincipal(as string) (policy.Principal, error) {
	who, err := policy.ParsePrincipal(cmp.Or(as, p.Default))
	if err != nil || len(who.Groups) > 0 {
		return who, err
	}
	known, _, err := p.Book.Person(context.Background(), local.Tenant, who.ID)
	who.Groups = slices.Clone(known.Groups)
	return who, err
}

type peopleCommand struct {
	Import peopleImportCommand `cmd:"" help:"Make a deployment's people those of FILE."`
}

type peopleImportCommand struct {
	File string `arg:"" help:"A document of people by tenant, for COUNTERSIGN_TABLE."`
}

func (c *peopleImportCommand) run(ctx context.Context, p *program) error {
	document, err := os.ReadFile(c.File)
	if err != nil {
		return usageErrorf("people import: %v", err)
	}
	cfg, err := p.aws.Config()
	if err != nil {
		return usageErrorf("people import: %v", err)
	}
	table, err := lambdafn.StoredTable(cfg, p.getenv)
	if err != nil {
		return usageErrorf("people import: %v (the stack's output TableName is the table)", err)
	}
	var out struct {
		Written int `json:"written"`
		Removed int `json:"removed"`
	}
	out.Written, out.Removed, err = people.Import(ctx, table, document)
	if bad, ok := errors.AsType[*people.ReadError](err); ok {
		return usageErrorf("%s: %v", c.File, bad)
	}
	if err != nil {
		return fmt.Errorf("people import: %w (import it again)", err)
	}
	p.printText("%d written, %d removed: they count within a minute", out.Written, out.Removed)
	return p.printJSON(out)
}
