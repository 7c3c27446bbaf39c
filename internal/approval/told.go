package approval

import "context"

// Told is a Desk's Decided that tells each of these, in order; those that are nil are nobody. Nil where all are.
func Told(each ...func(ctx context.Context, a Approval)) func(ctx context.Context, a Approval) {
	var all []func(ctx context.Context, a Approval)
	for _, f := range each {
		if f != nil {
			all = append(all, f)
		}
	}
	if all == nil {
		return nil
	}
	return func(ctx context.Context, a Approval) {
		for _, f := range all {
			f(ctx, a)
		}
	}
}
