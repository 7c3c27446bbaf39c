package agent

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// RunID is a run's id: "r" and 25 characters that follow from tenant, agent and key alone, so starting is idempotent (R1).
func RunID(tenant, agent, key string) string { return "r" + hashID(tenant, agent, key) }

// ApprovalID is the id of the request that is made when a call is suspended for approval: "a" and 25 characters. ask counts
// how often that call was suspended for approval, so asking anew makes a new request and a retry makes the same one.
func ApprovalID(run, call string, ask int) string { return "a" + hashID(run, call, strconv.Itoa(ask)) }

// ChildID is the id of the run that a call is: "r" and 25 characters. No key that anybody may choose leads to it.
func ChildID(tenant, agent, run, call string) string { return "r" + hashID(tenant, agent, run, call) }

// hashID is 125 bits of a hash over the parts, each with its length before it: no two lists of parts look alike.
func hashID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:25]
}

// CallID is the id a call has in its run: the model's, if it is 1 to 64 of [A-Za-z0-9_-] and new in the run, since some
// servers restart their ids every turn; else c<inference>-<index>, with -2, -3 and so on behind it should the model have
// used that. used reports whether an id is taken in the run, by this reply's earlier calls too.
func CallID(modelID string, used func(id string) bool, inference int64, index int) string {
	if validWord(modelID) && !used(modelID) {
		return modelID
	}
	minted := fmt.Sprintf("c%d-%d", inference, index)
	id := minted
	for n := 2; used(id); n++ {
		id = fmt.Sprintf("%s-%d", minted, n)
	}
	return id
}
