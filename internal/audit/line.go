package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Line is one link of a tenant's chain. Its stored and exported form is canonical JSON.
type Line struct {
	Hash   string          `json:"hash"` // hex SHA-256 over the others
	Prev   string          `json:"prev"` // the hash of the line before; "" = it is the first
	Record json.RawMessage `json:"record"`
	Seq    int64           `json:"seq"` // from 1
	Tenant string          `json:"tenant"`
}

// Head is the newest line of a chain. The zero value is that of an empty one.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// next is the line that follows h.
func (h Head) next(tenant string, r Record) (Line, error) {
	raw, err := run.MarshalVerbatim(r)
	if err != nil {
		return Line{}, fmt.Errorf("marshal record %s: %w", r.ID, err)
	}
	l := Line{Tenant: tenant, Seq: h.Seq + 1, Prev: h.Hash, Record: raw}
	l.Hash, err = l.sum()
	return l, err
}

// sum is the hash that the line has to have. The sequence is hashed as a string: RFC 8785 rounds numbers to doubles.
func (l Line) sum() (string, error) {
	text, err := canonical(map[string]any{"tenant": l.Tenant, "seq": strconv.FormatInt(l.Seq, 10), "prev": l.Prev, "record": l.Record})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:]), nil
}

// text is the stored form.
func (l Line) text() ([]byte, error) {
	text, err := canonical(map[string]any{"hash": l.Hash, "prev": l.Prev, "record": l.Record, "seq": l.Seq, "tenant": l.Tenant})
	return []byte(text), err
}

func canonical(v map[string]any) (string, error) {
	raw, err := run.MarshalVerbatim(v)
	if err != nil {
		return "", err
	}
	return jsonx.CanonicalJSON(raw)
}

// ParseLine reads a line that is written as lines are. Its hash may be wrong: see Verifier.
func ParseLine(text []byte) (Line, error) {
	var l Line
	if err := json.Unmarshal(text, &l); err != nil {
		return Line{}, fmt.Errorf("it is no line of an audit chain: %w", err)
	}
	again, err := l.text()
	if err != nil || !bytes.Equal(again, text) {
		return Line{}, fmt.Errorf("it is not written as a line of an audit chain is")
	}
	return l, nil
}

// The bounds of a record's texts, in bytes. All that is longer is cut: a record names things and says nothing of what
// they hold.
const (
	maxID   = 400
	maxText = 600
)

// clean is the record as it is kept: bounded, in UTF-8, its time in whole milliseconds.
func (r Record) clean(now time.Time) (Record, error) {
	if r.ID == "" || len(r.ID) > maxID || !utf8.ValidString(r.ID) || strings.ContainsRune(r.ID, 0) {
		return Record{}, fmt.Errorf("record %q of kind %q: want an id of 1 to %d bytes", run.Bounded(r.ID), r.Kind, maxID)
	}
	if r.Kind == "" {
		return Record{}, fmt.Errorf("record %s: want a kind, got none", r.ID)
	}
	if r.At.IsZero() {
		r.At = now
	}
	r.At = r.At.UTC().Truncate(time.Millisecond)
	for _, text := range []*string{&r.Approval, &r.Run, &r.Call, &r.Agent, &r.Tool, &r.Actor, &r.Channel, &r.Action, &r.Digest, &r.ArgsHash, &r.Policy, &r.Detail} {
		*text = bounded(*text)
	}
	return r, nil
}

func bounded(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	cut := maxText
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}
