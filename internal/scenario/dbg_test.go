package scenario

import (
	"fmt"
	"os"
	"testing"

	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/pkg/agent"
)

func TestDbg(t *testing.T) {
	f := os.Getenv("SCN")
	if f == "" {
		t.Skip()
	}
	data, _ := os.ReadFile(f)
	s, err := Load(f, data)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{}
	var n int
	var k string
	if fmt.Sscanf(os.Getenv("PT"), "%d %s", &n, &k); n > 0 {
		o.Crash = &fault.Point{Call: n, Kind: fault.Kind(k)}
	}
	r := s.Run(o)
	for _, c := range r.Calls {
		fmt.Println(c)
	}
	for _, e := range r.Journal {
		fmt.Print(e.Seq, " ", e.Writer, " ", e.Time.Format("02 15:04:05.000"), " ", e.Kinds)
		for _, ev := range e.Events {
			raw, _ := agent.MarshalEvent(ev)
			fmt.Printf("\n     %.300s", raw)
		}
		fmt.Println()
	}
	for _, f := range r.Failures {
		fmt.Println("FAIL", f)
	}
}
