package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Keys of the one table (ARCHITECTURE.md, the journal). Under a run's partition the sort keys order themselves so that
// one range reads the journal's tail and exactly the undrained inbox: HEAD < I# (markers) < J# (journal) < K# (inbox,
// newest first).
const (
	headSK     = "HEAD"
	maxSlot    = 9_999_999_999 // ten digits
	journalSK  = "J#"
	inboxSK    = "K#"
	markerSK   = "I#"
	pastInbox  = "K#~"
	firstInbox = "K#"
)

func runPK(tenant, run string) string { return "T#" + tenant + "#RUN#" + run }

func entryKey(tenant, run string, seq int64) Key { return Key{runPK(tenant, run), entrySK(seq)} }

func entrySK(seq int64) string { return fmt.Sprintf("%s%010d", journalSK, seq) }

func slotKey(tenant, run string, n int64) Key { return Key{runPK(tenant, run), slotSK(n)} }

func slotSK(n int64) string { return fmt.Sprintf("%s%010d", inboxSK, maxSlot-n) }

// slotNumber reads the slot's number from its sort key; a *DamagedError where that holds none.
func slotNumber(k Key) (int64, error) {
	left, err := strconv.ParseInt(strings.TrimPrefix(k.SK, inboxSK), 10, 64)
	if err != nil || left < 0 || slotSK(maxSlot-left) != k.SK {
		return 0, Damaged(k, "sort key: want %s and ten digits", inboxSK)
	}
	return maxSlot - left, nil
}

func markerKey(tenant, run, id string) Key { return Key{runPK(tenant, run), markerSK + id} }

func headKey(tenant, run string) Key { return Key{runPK(tenant, run), headSK} }

func runsIndex(tenant, status string) string { return "T#" + tenant + "#RUNS#" + status }

// RunKey is the key of a run's view, by which lists know the run.
func RunKey(tenant, run string) Key { return headKey(tenant, run) }
