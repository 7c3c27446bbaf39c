package sweep

import (
	"os"
	"path/filepath"
	"testing"
	"time"
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/scenario"
)

func TestDev(t *testing.T) {
	for _, name := range strings.Split(os.Getenv("SC"), ",") {
		data, err := os.ReadFile(filepath.Join("../../scenarios", name+".txtar"))
		require.NoError(t, err)
		s, err := scenario.Load(name+".txtar", data)
		require.NoError(t, err)
		sc := Scope{Kinds: fault.Kinds(), Patience: 4, Budget: Budget{Faults: 1}}
		if d := os.Getenv("DEEDS"); d != "" {
			sc.Budget.Acts = 1
			if d == "all" { sc.Deeds = scenario.Deeds() } else { for _, x := range strings.Split(d, ",") { sc.Deeds = append(sc.Deeds, scenario.Deed(x)) } }
		}
		if os.Getenv("NOFAULT") != "" { sc.Budget.Faults = 0 }
		if f := os.Getenv("FAULTS"); f != "" { fmt.Sscan(f, &sc.Budget.Faults); sc.Window = 20 }
		start := time.Now()
		c, found := Explore(s, sc)
		fmt.Printf("%s: %+v in %v, %d findings\n", name, c, time.Since(start).Round(time.Millisecond), len(found))
		for i, f := range found { if i < 12 { x := f.String(); if len(x) > 600 { x = x[:600] }; fmt.Println("  ", x) } }
	}
}
