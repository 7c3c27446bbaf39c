package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The approvals of a request are recorded twice: in its item, for people, and beside its run, under PK
// T#tenant#RUN#run, SK V#request#person#revision, for the claim. Whoever can write the request's item alone changes
// what people see, and lets nothing run: the fact that lets a call run names those whose approvals stand beside the
// run, and who they are. The claim counts them against the policy (agent.Grant, ToolPermit, StandingGrant).

// approvalRecord is an approval as it stands beside its run.
type approvalRecord struct {
	run.Voice
	About string `json:"about"` // what was approved: see about
}

func runPartition(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

// subjectDigest is what an approval of a request is of: the action, or the answer, or the tools, and how far the grant goes.
func subjectDigest(a Approval, said Decision) (string, error) {
	digest := a.Digest
	if a.Kind == KindInput { // the answer stands in its place
		digest = ""
	}
	of, err := run.MarshalVerbatim([]any{digest, said.Action, said.Args, said.Tools, said.Grant})
	if err != nil {
		return "", fmt.Errorf("record the approval of %s: %w", said.By, err)
	}
	return store.BlobDigest(of), nil
}

// newestVoice is a person's voice in the newest decision of a request.
func newestVoice(decided Approval, by policy.Principal) run.Voice {
	said := decided.Decisions[len(decided.Decisions)-1]
	return run.Voice{By: by.ID, Groups: by.Groups, At: said.At, Tools: said.Tools}
}

// approvalRecordOp records the newest approval of a request that goes on.
func approvalRecordOp(decided Approval, by policy.Principal) (store.Op, error) {
	of, err := subjectDigest(decided, decided.Decisions[len(decided.Decisions)-1])
	if err != nil {
		return store.Op{}, err
	}
	body, err := json.Marshal(approvalRecord{newestVoice(decided, by), of})
	if err != nil {
		return store.Op{}, fmt.Errorf("record the approval of %s: %w", by.ID, err)
	}
	key := store.Key{
		PK: runPartition(decided.Tenant, decided.Run), SK: fmt.Sprintf("V#%s#%s#%d", decided.ID, by.ID, decided.rev),
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}, nil
}

// loadVoices are those of the people who have decided a request: the newest, and of those with whom it is decided, what is
// recorded beside the run.
func (d *Desk) loadVoices(ctx context.Context, decided Approval, by policy.Principal, with []string) ([]run.Voice, error) {
	last := newestVoice(decided, by)
	if len(with) == 0 {
		return []run.Voice{last}, nil
	}
	from, to := prefixRange("V#" + decided.ID)
	p, err := d.Table.Query(ctx, store.Range{PK: runPartition(decided.Tenant, decided.Run), From: from, To: to})
	if err != nil {
		return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, err)
	}
	said := map[string]bool{} // by whom, about what
	for _, of := range decided.Decisions[:len(decided.Decisions)-1] {
		what, err := subjectDigest(decided, of)
		if err != nil {
			return nil, err
		}
		said[of.By+" "+what] = slices.Contains(with, of.By)
	}
	var all []run.Voice
	for _, it := range p.Items {
		var r approvalRecord
		if err := json.Unmarshal(it.Body, &r); err != nil {
			return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, store.Damaged(it.Key, "%w", err))
		}
		if said[r.By+" "+r.About] {
			all = append(all, r.Voice)
		}
	}
	slices.SortStableFunc(all, func(a, b run.Voice) int { return a.At.Compare(b.At) })
	return append(all, last), nil
}
