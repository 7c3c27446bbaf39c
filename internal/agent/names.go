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

// Closest are the three names most like one that no tool has, best first (presets 7): the same but for case and
// separators, then the same but for a prefix, then those of which at most half would have to be changed. A tool never
// runs under a name that is not its own: rules, approvals and the journal go by names.
func Closest(asked string, names []string) []string {
	score := map[string]float64{}
	found := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		score[name] = similarity(asked, name)
		return score[name] < 0.5
	})
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(score[b], score[a]) })
	return found[:min(len(found), 3)]
}

// similarity returns how much two names have in common: 3 if only case and separators differ, 2 if one is the other
// behind a prefix, else the share of the longer name, from 0 to 1, that need not change.
func similarity(asked, name string) float64 {
	a, b := normalizedName(asked), normalizedName(name)
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

// normalizedName returns a name without case and without word separators. Of one that a model made up it has as many
// runes as a tool's own may have.
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

// FoldCase folds text for the search of phrases: no case (as in strings.EqualFold), and one kind of apostrophe.
func FoldCase(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '’' || r == 'ʼ':
			return '\''
		case r < 'A': // digits, spaces and most of what stands between words have no case
			return r
		}
		return CaseFold(r)
	}, text)
}

// CaseFold is the smallest of the runes that are r in another case, as strings.EqualFold has it.
func CaseFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}

// agentNameForm is the form of agents' and plugins' names.
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

// ValidTenant reports whether s may name a tenant: ^[a-z0-9][a-z0-9-]{0,39}$.
func ValidTenant(s string) bool { return tenantName.MatchString(s) }

// ValidAgentName reports whether s may name an agent: ^[a-z][a-z0-9-]{0,39}$.
func ValidAgentName(s string) bool { return agentName.MatchString(s) }

// ValidWord reports whether s may be the id of a call, or a tool's name to a model: ^[A-Za-z0-9_-]{1,64}$.
func ValidWord(s string) bool { return wordName.MatchString(s) }

// SentName is the name of a tool call as every provider takes it, whatever the model has made up: other characters
// become _, and what is too long is cut.
func SentName(name string) string {
	sent := notInWord.ReplaceAllString(name, "_")
	return cmp.Or(sent[:min(len(sent), 64)], "_")
}

// ValidToolName reports whether s may be a tool's original name: words with dots between them.
func ValidToolName(s string) bool { return toolName.MatchString(s) }

// ValidDigest reports whether s has the form of a blob's digest: a SHA-256, 64 lower-case hex digits.
func ValidDigest(s string) bool { return digestForm.MatchString(s) }

// ValidPrincipal reports whether s is user:NAME or group:NAME: ^(user|group):[A-Za-z0-9._@+-]{1,128}$.
func ValidPrincipal(s string) bool {
	return run.IsPrincipal("user:", s) || run.IsPrincipal("group:", s)
}

// RunID is a run's id: "r" and 25 characters that follow from tenant, agent and key alone, so starting is idempotent
// (R1).
func RunID(tenant, agent, key string) string { return "r" + run.HashID(tenant, agent, key) }

// ChildID is the id of the run that a call is: "r" and 25 characters. No key that anybody may choose leads to it.
func ChildID(tenant, agent, runID, call string) string {
	return "r" + run.HashID(tenant, agent, runID, call)
}

// CallID is the id a call has in its run: the model's, if it is 1 to 64 of [A-Za-z0-9_-] and new in the run, since some
// servers restart their ids every turn; else c<inference>-<index>, with -2, -3 and so on behind it should the model
// have used that. used reports whether an id is taken in the run, by this reply's earlier calls too.
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

// ValidMediaType reports whether s is a media type as image/png or text/plain; charset=utf-8, of at most 255 bytes.
func ValidMediaType(s string) bool {
	kind, params, err := mime.ParseMediaType(s)
	main, sub, both := strings.Cut(kind, "/")
	return err == nil && both && main != "" && sub != "" && len(s) <= 255 &&
		mime.FormatMediaType(kind, params) != ""
}

// CheckMedia says what is wrong with media as somebody hands them in; nil = they may be kept. Whether a blob is there,
// and whether data is base64, it does not look at.
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
