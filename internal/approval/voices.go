package approval

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/store"
)

// The approvals of a request are recorded twice: in its item, for people, and beside its run, under PK
// T#tenant#RUN#run, SK V#request#person, for the claim. Whoever can write the request's item alone changes what
// people see, and lets nothing run: the fact that lets a call run names those whose approvals stand beside the run,
// and who they are, and the claim counts them against the policy (agent.Grant).

// recorded is an approval as it stands beside its run.
type recorded struct {
	agent.Voice
	About string `json:"about"` // what was approved: see about
}

func voiceKey(a Approval, by string) store.Key {
	return store.Key{PK: "T#" + a.Tenant + "#RUN#" + a.Run, SK: "V#" + a.ID + "#" + by}
}

// about is what an approval of a request is of: the action, or the answer where it asks for one.
func about(a Approval) string {
	if a.Kind == KindInput {
		return store.BlobDigest(a.lastAnswer())
	}
	return a.Digest
}

// voice is the one that the person of a request speaks with.
func (r Request) voice(now time.Time) agent.Voice {
	v := agent.Voice{By: r.By.ID, Groups: r.By.Groups, For: r.as.For, At: now}
	if v.For != "" {
		v.ForGroups = r.as.who.Groups
	}
	return v
}

// voiceOp records an approval that is not the last one which it takes.
func voiceOp(decided Approval, r Request, now time.Time) (store.Op, error) {
	body, err := json.Marshal(recorded{r.voice(now), about(decided)})
	if err != nil {
		return store.Op{}, fmt.Errorf("record the approval of %s: %w", r.By.ID, err)
	}
	return store.Op{Kind: store.Put, Item: store.Item{Key: voiceKey(decided, r.By.ID), Body: body}}, nil
}

// voices are those of the people whose approvals the fact names, as far as they are recorded beside the run.
func (d *Desk) voices(ctx context.Context, decided Approval, r Request, fact agent.Decided, now time.Time) ([]agent.Voice, error) {
	var all []agent.Voice
	for _, by := range fact.With {
		it, found, err := d.Table.Get(ctx, voiceKey(decided, by))
		if err != nil {
			return nil, fmt.Errorf("read the approval of %s: %w", by, err)
		}
		if !found {
			continue
		}
		var v recorded
		if err := json.Unmarshal(it.Body, &v); err != nil {
			return nil, fmt.Errorf("read the approval of %s: %w", by, store.Unreadable(it.Key, err))
		}
		if v.By == by && v.About == about(decided) {
			all = append(all, v.Voice)
		}
	}
	return append(all, r.voice(now)), nil
}
