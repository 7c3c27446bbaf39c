package show

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/people/mask"
)

// Editable returns a call's arguments for a person to edit: compact JSON with a placeholder for every value that has a
// secret in it. The placeholder replaces a whole text, even if only a part of it is secret, and a whole object if one
// of its keys has the form of a secret. Restore reads the edited JSON. The error says that the arguments are not JSON.
func Editable(args, schema json.RawMessage) (json.RawMessage, error) {
	v, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	return replaceValues(v, findMasked(v).placeholders), nil
}

// EditError says why edited arguments are rejected. It quotes nothing of what is stored.
type EditError struct {
	Pointer string // RFC 6901, into what was edited
	Problem string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("edited arguments at %q: %s", e.Pointer, e.Problem)
}

// Restore puts the stored values back in place of the placeholders of Editable. A placeholder must stay where Editable
// put it; placeholders are numbered, so that values cannot swap places. A placeholder anywhere else, even as a part of
// a text or a key, is rejected, unless that very text is stored there. The errors are those of agent.CompactJSON for
// the edited JSON, and *EditError. The result is compact.
func Restore(edited, args, schema json.RawMessage) (json.RawMessage, error) {
	edited, err := jsonx.CompactJSON(edited, jsonx.JSONLimits{})
	if err != nil {
		return nil, err
	}
	stored, err := mask.Read(args, schema)
	if err != nil {
		return nil, err
	}
	v, err := mask.Read(edited, nil)
	if err != nil {
		return nil, err
	}
	back := map[*mask.Value]json.RawMessage{}
	if err := findMasked(stored).restore(v, "", back); err != nil {
		return nil, err
	}
	return jsonx.CompactJSON(replaceValues(v, back), jsonx.JSONLimits{})
}

// What placeholders begin and end with. Between them is a number.
const (
	placeholderBegins = "[masked "
	placeholderEnds   = ": kept as it is]"
)

// maskedValues holds the masked values of stored arguments, by value and by JSON pointer.
type maskedValues struct {
	placeholders map[*mask.Value]json.RawMessage // JSON strings
	masked       map[string]*mask.Value
	texts        map[string]string // the stored texts that are not held back and look like placeholders
	keys         map[string]bool   // the members whose keys do
}

func findMasked(v *mask.Value) maskedValues {
	h := maskedValues{
		map[*mask.Value]json.RawMessage{}, map[string]*mask.Value{}, map[string]string{}, map[string]bool{},
	}
	h.collect(v, "")
	return h
}

// collect finds the masked values in v. A value is masked as a whole.
func (h maskedValues) collect(v *mask.Value, at string) {
	secretKey := func(m mask.Member) bool { return len(mask.Secrets(m.Key)) > 0 }
	if v.Secret != "" || len(v.Hidden) > 0 || slices.ContainsFunc(v.Members, secretKey) {
		placeholder := fmt.Sprintf(`"%s%d%s"`, placeholderBegins, len(h.masked)+1, placeholderEnds)
		h.placeholders[v], h.masked[at] = json.RawMessage(placeholder), v
		return
	}
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		h.texts[at] = v.Text
	}
	for i, m := range v.Members {
		under := pointer(at, v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) {
			h.keys[under] = true
		}
		h.collect(m.Value, under)
	}
}

func pointer(at string, of mask.Kind, i int, key string) string {
	if of == mask.Array {
		return fmt.Sprintf("%s/%d", at, i)
	}
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// restore collects the stored values for the placeholders in v.
func (h maskedValues) restore(v *mask.Value, at string, back map[*mask.Value]json.RawMessage) error {
	if v.Kind == mask.String && strings.Contains(v.Text, placeholderBegins) {
		switch stored, held := h.masked[at]; {
		case held && string(h.placeholders[stored]) == string(v.Raw):
			back[v] = stored.Raw
			return nil
		case h.texts[at] == v.Text: // it was there before
			return nil
		}
		return &EditError{Pointer: at, Problem: "a masked value may stay where it was, or be replaced as a whole; it " +
			"cannot be moved, copied or made a part of something"}
	}
	for i, m := range v.Members {
		under := pointer(at, v.Kind, i, m.Key)
		if strings.Contains(m.Key, placeholderBegins) && !h.keys[under] {
			return &EditError{Pointer: at, Problem: "a masked value cannot be a key"}
		}
		if err := h.restore(m.Value, under, back); err != nil {
			return err
		}
	}
	return nil
}

func replaceValues(v *mask.Value, by map[*mask.Value]json.RawMessage) json.RawMessage {
	return v.Rewrite(func(v *mask.Value) []byte { return by[v] }, func(string) []byte { return nil })
}
