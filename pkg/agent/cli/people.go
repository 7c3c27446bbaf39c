package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/people/person"
)

type peopleCommand struct {
	Import peopleImportCommand `cmd:"" help:"Make a deployment's people those of FILE."`
}

// peopleImportCommand writes a document of people to the table of a deployment.
type peopleImportCommand struct {
	File string `arg:"" help:"A document of people by tenant, for COUNTERSIGN_TABLE."`
}

// importedPeople is the JSON document of people import.
type importedPeople struct {
	Written int `json:"written"`
	Removed int `json:"removed"`
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
	var out importedPeople
	out.Written, out.Removed, err = person.Import(ctx, table, document)
	var bad *person.ReadError
	if errors.As(err, &bad) {
		return usageErrorf("%s: %v", c.File, bad)
	}
	if err != nil {
		return fmt.Errorf("people import: %w (import it again)", err)
	}
	p.printText("%d written, %d removed: they count within a minute", out.Written, out.Removed)
	return p.printJSON(out)
}
