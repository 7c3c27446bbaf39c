package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/store"
)

// The bounds of codes. Those of a person about a request are counted for each channel that links came by.
const (
	CodeLife     = 10 * time.Minute
	codePause    = time.Minute // between two codes
	maxCodeTries = 5           // of one code
	maxCodes     = 10
)

// codeAudience separates the MACs of codes from others made with the same keys.
const codeAudience = "approval-code"

// CodeError says why there is no code, or why one is not taken. Problem is fit for the person.
type CodeError struct{ Problem string }

func (e *CodeError) Error() string { return "code: " + e.Problem }

// linkCode is the newest code that was sent to a person who had opened a request by a link of one channel. Only its MAC
// is stored, which the keys of links make, so that nobody who reads the table finds the code.
type linkCode struct {
	Key     string    `json:"key"`
	MAC     []byte    `json:"mac"`
	Sent    time.Time `json:"sent"`
	Codes   int       `json:"codes"` // that were sent so far
	Tries   int       `json:"tries"` // of this code
	Used    bool      `json:"used,omitempty"`
	rev     int64
	present bool
}

// codeKey returns the key of a code: PK T#tenant#CODE#request, SK channel#person.
func codeKey(l Link) store.Key {
	return store.Key{PK: "T#" + l.Tenant + "#CODE#" + l.Approval, SK: l.Channel + "#" + l.To}
}

// codeFields returns what the MAC of a code covers: the request, the action in it, the person, the channel of the link,
// and the code.
func codeFields(l Link, digest, text string) []string {
	return []string{l.Tenant, l.Approval, digest, l.To, l.Channel, text}
}

// NewCode stores a new code in place of the last one, and returns it. It is to be sent to the link's person by another
// channel than the link's. It holds for the action with the digest. The error is a *CodeError if none may be sent now.
func (l *Links) NewCode(ctx context.Context, of Link, digest string) (string, error) {
	c, err := l.loadCode(ctx, of)
	now := l.Clock.Now()
	switch {
	case err != nil:
		return "", err
	case c.present && now.Before(c.Sent.Add(codePause)):
		return "", &CodeError{"one was sent to you a moment ago. Wait a minute before you ask for another one"}
	case c.Codes >= maxCodes:
		return "", &CodeError{fmt.Sprintf("%d were sent to you for this request, and no more are", c.Codes)}
	}
	text := l.IDs.Code()
	if c.Key, c.MAC, err = l.sign(codeAudience, codeFields(of, digest, text)...); err != nil {
		return "", fmt.Errorf("sign a code of approval %s: %w", of.Approval, err)
	}
	c.Sent, c.Tries, c.Used = now.UTC(), 0, false
	c.Codes++
	if err := l.saveCode(ctx, of, c); store.FailedOp(err, 0) {
		return "", &CodeError{"another one is being sent to you"}
	} else if err != nil {
		return "", err
	}
	return text, nil
}

// UseCode uses up the code of a link's person for the action with the digest, if text is the code. Every try is counted
// before its result is known. The error is a *CodeError if the code is not taken.
func (l *Links) UseCode(ctx context.Context, of Link, digest, text string) error {
	text = strings.NewReplacer(" ", "", "-", "").Replace(text)
	for range maxCodeTries + 1 { // others may try at the same time
		c, err := l.loadCode(ctx, of)
		switch {
		case err != nil:
			return err
		case text == "":
			return &CodeError{"type the code that was sent to you, or ask for one"}
		case !c.present || c.Used || c.Tries >= maxCodeTries || !l.Clock.Now().Before(c.Sent.Add(CodeLife)):
			return &CodeError{"there is none that still works. Ask for a new one"}
		}
		ring, err := l.Ring()
		if err != nil {
			return fmt.Errorf("verify a code of approval %s: %w", of.Approval, err)
		}
		c.Used = ring != nil && ring.Verify(c.MAC, c.Key, codeAudience, codeFields(of, digest, text)...)
		c.Tries++
		err = l.saveCode(ctx, of, c)
		switch {
		case store.FailedOp(err, 0):
		case err != nil:
			return err
		case c.Used:
			return nil
		default:
			return &CodeError{fmt.Sprintf("that is not the one that was sent to you for the request as it is now. "+
				"%d of %d tries are left", maxCodeTries-c.Tries, maxCodeTries)}
		}
	}
	return &CodeError{"others are trying it. Ask for a new one"}
}

func (l *Links) loadCode(ctx context.Context, of Link) (c linkCode, err error) {
	it, found, err := l.Table.Get(ctx, codeKey(of))
	if err != nil || !found {
		return linkCode{}, err
	}
	rev, err := it.Number("rev")
	if err = errors.Join(err, json.Unmarshal(it.Body, &c)); err != nil {
		return linkCode{}, fmt.Errorf("read a code: %w", store.Damaged(it.Key, "%w", err))
	}
	c.rev, c.present = rev, true
	return c, nil
}

// saveCode writes a code if nobody has written it since it was read; else operation 0 fails.
func (l *Links) saveCode(ctx context.Context, of Link, c linkCode) error {
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("marshal a code of approval %s: %w", of.Approval, err)
	}
	op := store.Op{Kind: store.Put, Item: store.Item{Key: codeKey(of), Body: body, Attrs: map[string]store.Value{
		"rev": store.Num(c.rev + 1), linkTTL: store.Num(of.Expires.Unix()),
	}}}
	op.If = []store.Cond{{Attr: "rev", Op: store.Equal, Value: store.Num(c.rev)}}
	if !c.present {
		op.If = []store.Cond{{Op: store.ItemAbsent}}
	}
	return l.Table.Write(ctx, op)
}
