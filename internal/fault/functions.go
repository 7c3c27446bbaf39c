package fault

import (
	"context"

	"github.com/countersign/countersign/internal/runtime"
)

// Functions puts the injector before functions.
func (in *Injector) Functions(next runtime.Functions) runtime.Functions { return &functions{in, next} }

type functions struct {
	in   *Injector
	next runtime.Functions
}

func (f *functions) Invoke(ctx context.Context, i runtime.Invoke) (out runtime.Invoked, err error) {
	err = f.in.through(ctx, Call{Port: portFunctions, What: i.Function, Once: i.Once}, func() (err error) {
		out, err = f.next.Invoke(ctx, i)
		return err
	})
	return out, err
}
