package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// The approvals of a request are recorded twice: in its item, for people, and in the run's partition, for the claim (PK
// T#tenant#RUN#run, SK V#request#person#revision). A process that can write only the item changes what people see, and
// lets nothing run: the fact that lets a call run names the people whose approvals are in the run's partition. The
// claim counts them against the policy (run.Grant, run.ToolPermit, run.StandingGrant).

type approvalRecord struct {
	run.Approver
	About string `json:"about"` // by subjectDigest
}

func runPartition(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

// subjectDigest returns the digest of what an approval is about: the action or the answer, the tools, and the bounds of
// the grant.
func subjectDigest(a Approval, decision Decision) (string, error) {
	digest := a.Digest
	if a.Kind == KindInput { // the answer replaces it
		digest = ""
	}
	of, err := jsonx.MarshalVerbatim([]any{digest, decision.Action, decision.Args, decision.Tools, decision.Grant})
	if err != nil {
		return "", fmt.Errorf("record the approval of %s: %w", decision.By, err)
	}
	return store.BlobDigest(of), nil
}

// newestApprover returns the person's part in the decision.
func (t *attempt) newestApprover() run.Approver {
	return run.Approver{
		By: t.By.ID, Groups: t.By.Groups, At: t.now, Tools: t.record.Tools, Via: t.Via, Confirmed: t.record.Confirmed,
	}
}

// approvalRecordOp records the newest approval of a request that stays pending.
func (t *attempt) approvalRecordOp() (store.Op, error) {
	of, err := subjectDigest(t.decided, t.record)
	if err != nil {
		return store.Op{}, err
	}
	body, err := json.Marshal(approvalRecord{t.newestApprover(), of})
	if err != nil {
		return store.Op{}, fmt.Errorf("record the approval of %s: %w", t.By.ID, err)
	}
	key := store.Key{
		PK: runPartition(t.Tenant, t.decided.Run), SK: fmt.Sprintf("V#%s#%s#%d", t.ID, t.By.ID, t.decided.rev),
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: key, Body: body}}, nil
}

// loadApprovers returns the people who have decided the request: the newest one, and those with whom it is decided, as
// recorded with the run.
func (t *attempt) loadApprovers(ctx context.Context) ([]run.Approver, error) {
	decided, last := t.decided, t.newestApprover()
	if len(t.fact.With) == 0 {
		return []run.Approver{last}, nil
	}
	from, to := prefixRange("V#" + decided.ID)
	p, err := t.Table.Query(ctx, store.Range{PK: runPartition(decided.Tenant, decided.Run), From: from, To: to})
	if err != nil {
		return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, err)
	}
	counted := map[string]bool{} // by person and subject
	for _, of := range decided.Decisions[:len(decided.Decisions)-1] {
		what, err := subjectDigest(decided, of)
		if err != nil {
			return nil, err
		}
		counted[of.By+" "+what] = slices.Contains(t.fact.With, of.By)
	}
	var all []run.Approver
	for _, it := range p.Items {
		var r approvalRecord
		if err := json.Unmarshal(it.Body, &r); err != nil {
			return nil, fmt.Errorf("read the approvals of %s: %w", decided.ID, store.Damaged(it.Key, "%w", err))
		}
		if counted[r.By+" "+r.About] {
			all = append(all, r.Approver)
		}
	}
	slices.SortStableFunc(all, func(a, b run.Approver) int { return a.At.Compare(b.At) })
	return append(all, last), nil
}
