package agent

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/countersign/countersign/internal/run"
)

// Closest returns up to three names that are most like a name that no tool has, best first (presets 7). Names that
// differ only in case and separators come first, then names that differ in a prefix, then names of which at most half
// has to be changed. A suggestion is never executed by itself, because rules, approvals and the journal go by names.
func Closest(wanted string, names []string) []string {
	score := map[string]float64{}
	found := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		score[name] = similarity(wanted, name)
		return score[name] < 0.5
	})
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(score[b], score[a]) })
	return found[:min(len(found), 3)]
}

// similarity returns how much two names have in common: 3 if only case and separators differ, 2 if one of them is the
// other with a prefix, else the share of the longer name, from 0 to 1, that need not change.
func similarity(wanted, name string) float64 {
	a, b := normalizedName(wanted), normalizedName(name)
	switch {
	case len(a) == 0 || len(b) == 0:
		return 0
	case slices.Equal(a, b):
		return 3
	case strings.HasSuffix(string(b), "_"+string(a)) || strings.HasSuffix(string(a), "_"+string(b)):
		return 2
	default:
		return 1 - float64(editDistance(a, b))/float64(max(len(a), len(b)))
	}
}

// normalizedName returns a name without case and word separators, cut to the longest length of a tool's name.
func normalizedName(name string) []rune {
	r := []rune(strings.NewReplacer(".", "_", "-", "_", "/", "_", ":", "_", " ", "_").Replace(FoldCase(name)))
	return r[:min(len(r), 64)]
}

// editDistance returns how many runes must be changed, added or removed to turn a into b (Levenshtein).
func editDistance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, ca := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, cb := range b {
			change := diagonal
			if ca != cb {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// FoldCase folds text for the search of phrases: it removes case (as strings.EqualFold does) and unifies apostrophes.
func FoldCase(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '’' || r == 'ʼ':
			return '\''
		case r < 'A': // digits, spaces and most punctuation have no case
			return r
		}
		return CaseFold(r)
	}, text)
}

// CaseFold returns the smallest of the runes that differ from r only in case, by the rules of strings.EqualFold.
func CaseFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// agentNameForm is the form of names of agents and plugins.
const agentNameForm = `^[a-z][a-z0-9-]{0,39}$`

var (
	tenantName  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	agentName   = regexp.MustCompile(agentNameForm)
	wordName    = regexp.MustCompile(`^[\w-]{1,64}$`)
	notInWord   = regexp.MustCompile(`[^\w-]`)
	toolName    = regexp.MustCompile(`^[\w-]+(\.[\w-]+)*$`)
	toolPattern = regexp.MustCompile(`^[\w.*-]+$`)
	digestForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ValidTenant reports whether s is a valid name of a tenant: ^[a-z0-9][a-z0-9-]{0,39}$.
func ValidTenant(s string) bool { return tenantName.MatchString(s) }

// ValidAgentName reports whether s is a valid name of an agent: ^[a-z][a-z0-9-]{0,39}$.
func ValidAgentName(s string) bool { return agentName.MatchString(s) }

// ValidWord reports whether s is a valid call id or model-facing tool name: ^[A-Za-z0-9_-]{1,64}$.
func ValidWord(s string) bool { return wordName.MatchString(s) }

// SentName returns the name of a tool call in a form that every provider accepts, even if the model made the name up.
// Other characters become _, and long names are cut.
func SentName(name string) string {
	sent := notInWord.ReplaceAllString(name, "_")
	return cmp.Or(sent[:min(len(sent), 64)], "_")
}

// ValidToolName reports whether s is a valid original name of a tool: words with dots between them.
func ValidToolName(s string) bool { return toolName.MatchString(s) }

// ValidDigest reports whether s has the form of a blob's digest: a SHA-256, 64 lower-case hex digits.
func ValidDigest(s string) bool { return digestForm.MatchString(s) }

// ValidPrincipal reports whether s is user:NAME or group:NAME: ^(user|group):[A-Za-z0-9._@+-]{1,128}$.
func ValidPrincipal(s string) bool {
	return run.IsPrincipal("user:", s) || run.IsPrincipal("group:", s)
}

// RunID returns a run's id: "r" and 25 characters. It depends on tenant, agent and key alone, so that starting a run is
// idempotent (R1).
func RunID(tenant, agent, key string) string { return "r" + run.HashID(tenant, agent, key) }

// ChildID returns the id of the run that a delegated call starts: "r" and 25 characters. No key that a caller can
// choose leads to it.
func ChildID(tenant, agent, runID, call string) string {
	return "r" + run.HashID(tenant, agent, runID, call)
}

// UndoID returns the id of the run that undoes a call. Its key contains NUL, so that no client can send it.
func UndoID(tenant, agent, runID, call string) string {
	return RunID(tenant, agent, "undo\x00"+runID+"\x00"+call)
}

// CallID returns the id of a call in its run. It is the model's id if that is 1 to 64 of [A-Za-z0-9_-] and new in the
// run, since some servers restart their ids every turn. Otherwise it is c<inference>-<index>, followed by -2, -3 and so
// on if that is taken. used reports whether the run, including earlier calls of this reply, has an id already.
func CallID(modelID string, used func(id string) bool, inference int64, index int) string {
	if ValidWord(modelID) && !used(modelID) {
		return modelID
	}
	minted := fmt.Sprintf("c%d-%d", inference, index)
	id := minted
	for n := 2; used(id); n++ {
		id = fmt.Sprintf("%s-%d", minted, n)
	}
	return id
}

// ValidMediaType reports whether s is a media type such as image/png or text/plain; charset=utf-8, up to 255 bytes.
func ValidMediaType(s string) bool {
	kind, params, err := mime.ParseMediaType(s)
	main, sub, both := strings.Cut(kind, "/")
	return err == nil && both && main != "" && sub != "" && len(s) <= 255 &&
		mime.FormatMediaType(kind, params) != ""
}

// CheckMedia returns an error if media from a caller cannot be stored. It does not check whether a blob exists or
// whether data is base64.
func CheckMedia(m run.Media) error {
	switch {
	case !ValidMediaType(m.MediaType):
		return fmt.Errorf("mediaType: got %.64q, want one such as image/png", m.MediaType)
	case (m.Data == "") == (m.Blob == ""):
		return errors.New("want either data or blob")
	case m.Blob != "" && !ValidDigest(m.Blob):
		return fmt.Errorf("blob: got %.64q, want a SHA-256 in 64 lower-case hex digits", m.Blob)
	default:
		return nil
	}
}
